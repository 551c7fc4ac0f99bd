//! `--help [TOPIC]` and `--version`.

use base::error::{Error, Result};
use base::units::Size;
use clap::CommandFactory;
use measure::spec::plan::Service;
use measure::spec::test::Test;
use report::text::wrap;

use super::command_line::Options;
use super::qperf::{self, OptionName};
use super::{mesh, monitor, records, scope};

pub(crate) const EXAMPLES: &str =
    "    rperf                                 run a server, until a signal or `rperf HOST quit`
    rperf node1 rc_bw rc_lat              measure bandwidth and latency to node1
    rperf rc_bw rc_lat                    test a device with both ends on this host
    rperf -i mlx5_1 node1 rc_bw           use this device on both ends (-ri: on the server only)
    rperf -i mlx5_0,mlx5_1 node1 rc_bw    measure both devices at the same time: the sum and each
    rperf -cm1 node1 rc_bw                connect with rdma_cm
    rperf node1 -m 1M -t 10 rc_bw -m 64 rc_lat
                                          run each test with its own message size
    rperf --verify -n 10000 node1 rc_bi_bw
                                          check every received byte
    rperf --json node1 rc_bw rc_lat       print JSON for other programs
    rperf -t 60 --interval 1 node1 rc_bw  print a line per second, and dips and stalls
    rperf mesh node1,node2,node3 rc_bw rc_lat
                                          measure all pairs of servers that run with --mesh
    rperf monitor --listen :9743 --hosts-file hosts
                                          probe the paths to all servers, and serve metrics
    rperf --auto node1                    find the best settings and the bottleneck
    rperf --json --sizes 2..8M node1 rc_bw >new.json; rperf report old.json new.json -o page.html
                                          plot two runs
";

/// Returns the text to print if the command line contains `--help` or `--version`.
///
/// # Errors
/// A usage error if the help topic does not exist.
pub(crate) fn requested_text(args: &[String]) -> Result<Option<String>> {
    if args.iter().any(|a| a == "--version" || a == "-V") {
        return Ok(Some(format!("rperf {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let subcommand = args.first().and_then(|word| subcommand_help(word));
    let Some(at) = args.iter().position(|a| a == "--help" || a == "-h") else {
        return Ok(None);
    };
    let topic = args.get(at + 1).map(String::as_str);
    // Only a mesh has tests, so only its help has topics.
    if subcommand.is_some() && (topic.is_none() || args[0] != "mesh") {
        return Ok(subcommand);
    }
    if args[at] == "-h" && topic.is_none() {
        return Ok(Some(short()));
    }
    match topic.unwrap_or("main") {
        "main" | "options" => Ok(Some(format!(
            "{}\nTests:\n{}\nExamples:\n{EXAMPLES}\n{ENDS}\n`rperf --help opts` also lists rarely used options. The option names of qperf are accepted\neverywhere; `rperf --help qperf` lists them. `rperf --help perftest` lists the equivalents of the\nprograms and options of perftest.\n",
            command().render_help(),
            Test::list()
        ))),
        "opts" => Ok(Some(summary())),
        "categories" => Ok(Some(format!(
            "rperf --help TOPIC, where TOPIC is one of\n{}    the name of an option\n    the name of a test:\n{}",
            indented(TOPICS, 4),
            Test::list()
        ))),
        "tests" => Ok(Some(Test::list())),
        "examples" => Ok(Some(EXAMPLES.to_owned())),
        "qperf" => Ok(Some(super::qperf::table())),
        "perftest" => Ok(Some(super::perftest::help())),
        other => match subcommand_help(other) {
            Some(text) => Ok(Some(text)),
            None => topic_help(other).map(Some),
        },
    }
}

/// The options in the short help.
const COMMON: &[&str] = &[
    "id", "use-cm", "msg-size", "messages", "time", "sizes", "qps", "threads", "flip", "verify",
    "interval", "json", "bits", "verbose",
];

const SHORT_HELP: &str = "\
Examples:
    rperf                          run a server
    rperf node1 rc_bw rc_lat       measure bandwidth and latency to node1
    rperf node1 tcp_bw tcp_lat     the same over TCP
    rperf mesh node1,node2,node3 rc_bw
                                   measure all pairs of hosts

Each of these has more: rperf --help, --help tests, --help examples, --help TEST, --help OPTION,
--help qperf, --help perftest, rperf mesh --help, monitor --help, compare --help, report --help";

const ENDS: &str = "\
--id, --wait, --timeout, --cpu-affinity, --gid-index, --gpu, --rd-atomic, --service-level and
--sock-buf-size have a value for both ends, or one for each: --id local=mlx5_0,remote=mlx5_1.
";

/// Returns the command with the short names of qperf.
fn command() -> clap::Command {
    let command = Options::command().term_width(100);
    command.mut_args(|arg| {
        let Some(name) = arg.get_long().and_then(qperf::short) else {
            return arg;
        };
        let mut letters = name.chars().skip(1);
        if let (Some(letter), None) = (letters.next(), letters.next()) {
            return arg.short(letter);
        }
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        arg.help(format!("{help} ({name})"))
    })
}

/// Returns the help that fits on one screen.
fn short() -> String {
    let command = command().mut_args(|arg| {
        let is_common = arg.get_long().is_some_and(|long| COMMON.contains(&long));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        // The part before the details and the default.
        let end = help.find([';', '[']).unwrap_or(help.len());
        arg.hide(!is_common)
            .help_heading(Some("Common options"))
            .help(help[..end].trim_end().to_owned())
    });
    command.after_help(SHORT_HELP).render_help().to_string()
}

/// Returns the subcommands of rperf, each with its name.
pub(crate) fn subcommands() -> [(&'static str, clap::Command); 4] {
    [
        ("mesh", mesh::command()),
        ("monitor", monitor::command()),
        ("compare", records::compare_command()),
        ("report", records::report_command()),
    ]
}

/// Returns the help of a subcommand; `None` if there is none of this name.
fn subcommand_help(name: &str) -> Option<String> {
    let (_, command) = subcommands().into_iter().find(|(own, _)| *own == name)?;
    Some(command.term_width(100).render_help().to_string())
}

pub(crate) const TOPICS: &str = "main, categories, tests, options, opts, examples, qperf, perftest, compare, report, mesh, monitor";

/// Returns a text as lines of at most 100 columns, which begin with spaces.
fn indented(text: &str, spaces: usize) -> String {
    let lines = wrap(text, 100 - spaces);
    let line = |line: String| format!("{:spaces$}{line}\n", "");
    lines.into_iter().map(line).collect()
}

/// Returns each option with its short qperf name.
fn summary() -> String {
    let line = |arg: &clap::Arg| {
        let long = arg.get_long()?;
        let value = match arg.get_value_names() {
            Some(names) if arg.get_action().takes_values() => format!(" {}", names.join(" ")),
            _ => String::new(),
        };
        let short = qperf::short(long).map_or_else(String::new, |short| format!(" ({short})"));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        let help = indented(&help, 46);
        Some(format!(
            "{:<44}  {}",
            format!("--{long}{value}{short}"),
            help.trim_start()
        ))
    };
    Options::all().filter_map(line).collect()
}

/// Returns the help of one test: its description, defaults and an example.
fn test_help(test: Test) -> String {
    let mut lines = vec![format!("{:<24}{}", test.name(), test.about())];
    if test.moves_data() {
        lines.push(format!(
            "defaults: messages of {} (--msg-size, -m) for 2 s (--time, -t; by count: --messages, -n)",
            Size(test.default_size())
        ));
    }
    match test.plan().map(|plan| plan.service) {
        Some(service) if service.uses_cm() => {
            lines.push(format!(
                "{DEVICES}; connect with rdma_cm: --use-cm on (-cm1)"
            ));
        }
        Some(Service::Srd) => lines.push(format!("{DEVICES} of EFA")),
        Some(Service::Dc) => lines.push(format!("{DEVICES} of mlx5")),
        Some(_) => lines.push(DEVICES.to_owned()),
        None if test.socket().is_some() => {
            lines.push(
                "uses the network interface that reaches HOST: --ip-port (-ip), --sock-buf-size (-sb)"
                    .to_owned(),
            );
        }
        None => {}
    }
    lines.push(format!("example: rperf HOST {}", test.name()));
    format!("    {}\n", lines.join("\n    "))
}

const DEVICES: &str = "uses an RDMA device: --id (-i)";

/// Returns the help of a test, or of an option under any of its names.
fn topic_help(topic: &str) -> Result<String> {
    if let Ok(test) = Test::from_name(topic) {
        return Ok(test_help(test));
    }
    let bare = topic.trim_start_matches('-');
    let named = [format!("--{bare}"), format!("-{bare}")]
        .into_iter()
        .find_map(|name| match qperf::lookup(&name) {
            OptionName::Value(long) | OptionName::OptionalValue(long) | OptionName::Flag(long) => {
                Some(long.split('=').next().unwrap_or_default().to_owned())
            }
            _ => None,
        });
    let found = named.and_then(|long| Options::all().find(|a| a.get_long() == Some(&long)));
    match found {
        Some(arg) => {
            let value = arg
                .get_value_names()
                .map_or_else(String::new, |names| format!(" <{}>", names.join(" ")));
            let value = if arg.get_action().takes_values() {
                value
            } else {
                String::new()
            };
            let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
            Ok(format!(
                "    --{}{value}\n{}{}",
                arg.get_long().unwrap_or_default(),
                indented(&help, 8),
                match scope::kind(arg.get_long().unwrap_or_default()) {
                    Some(tests) => indented(&format!("Acts on {tests}"), 8),
                    None => String::new(),
                }
            ))
        }
        None => Err(Error::usage(format!(
            "no help topic named `{topic}`; available: {TOPICS}, and the name of each test and option"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requested(line: &str) -> Option<String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        requested_text(&words).unwrap()
    }

    #[test]
    fn the_short_help_fits_on_a_screen() {
        let help = requested("-h").unwrap();
        assert!(help.lines().count() <= 40, "{help}");
        assert!(
            help.lines().all(|line| line.chars().count() <= 100),
            "{help}"
        );
        let visible = Options::all().filter(|arg| !arg.is_hide_set()).count();
        assert!(visible <= 80, "{visible}");
    }

    #[test]
    fn no_line_of_the_help_is_longer_than_100_columns() {
        let options = Options::all().filter_map(|arg| arg.get_long().map(str::to_owned));
        let topics = TOPICS.split(", ").chain(Test::names()).map(str::to_owned);
        for topic in topics.chain(options) {
            let help = requested(&format!("--help {topic}")).unwrap();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "{topic}: {line}");
            }
        }
    }

    #[test]
    fn the_help_of_an_option_names_its_tests() {
        let help = requested("--help -mt").unwrap();
        assert!(
            help.contains("Acts on tests over RC, UC, XRC and DC"),
            "{help}"
        );
        let help = requested("--help json").unwrap();
        assert!(!help.contains("Acts on"), "{help}");
    }

    #[test]
    fn each_command_has_its_own_help() {
        for (line, expected) in [
            ("compare --help", "--threshold <PERCENT>"),
            ("report -h", "--output <PAGE>"),
            ("monitor --help", "--lost-after <N>"),
            ("mesh --help", "--slow-bandwidth <PERCENT>"),
            ("mesh node1,node2 rc_bw -h", "--pattern <PATTERN>"),
            ("--help mesh", "--start <HOW>"),
            ("--help compare", "--threshold <PERCENT>"),
        ] {
            let help = requested(line).unwrap();
            assert!(help.contains(expected), "{line}: {help}");
            assert!(!help.contains("--msg-size"), "{line}: {help}");
        }
        assert!(requested("mesh --help tests").unwrap().contains("rc_bw"));
        assert!(
            requested("node rc_bw --help")
                .unwrap()
                .contains("--msg-size")
        );
        assert_eq!(requested("node rc_bw"), None);
    }
}
