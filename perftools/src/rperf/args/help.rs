//! `--help [TOPIC]` and `--version`.

use base::error::{Error, Result};
use base::units::Size;
use clap::CommandFactory;
use measure::spec::plan::Service;
use measure::spec::test::Test;
use report::text::wrap;

use super::command_line::Options;
use super::option::{self, KnownOption, Scope};
use super::qperf::{self, OptionName};
use super::{mesh, monitor, records, scope, tune};

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
    rperf tune node1                      find the best settings and the bottleneck
    rperf --json --sizes 2..8M node1 rc_bw >new.json; rperf report old.json new.json -o page.html
                                          plot two runs
";

/// Returns the text to print if the command line contains `--help` or `--version`, or begins with
/// `help`.
pub(crate) fn requested_text(args: &[String]) -> Result<Option<String>> {
    if let Some(("help", rest)) = args.split_first().map(|(word, rest)| (word.as_str(), rest)) {
        let topic = rest.first().map_or("main", String::as_str);
        return topic_text(topic).map(Some);
    }
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
    topic_text(topic.unwrap_or("main")).map(Some)
}

fn topic_text(topic: &str) -> Result<String> {
    Ok(match topic {
        "main" => main_text(),
        "options" => format!(
            "{}\nTests:\n{}\nExamples:\n{EXAMPLES}\n{ENDS}\nThe option names of qperf are accepted everywhere; `rperf --help qperf` lists them. `rperf --help\nperftest` lists the equivalents of the programs and options of perftest.\n",
            command().render_help(),
            Test::list()
        ),
        "opts" => summary(),
        "categories" => format!(
            "rperf --help TOPIC, where TOPIC is one of\n{}    the name of an option\n    the name of a test:\n{}",
            indented(TOPICS, 4),
            Test::list()
        ),
        "tests" => Test::list(),
        "examples" => EXAMPLES.to_owned(),
        "qperf" => super::qperf::table(),
        "perftest" => super::perftest::help(),
        other => match (subcommand_help(other), group(other)) {
            (Some(text), _) => text,
            (None, Some(group)) => group.text(),
            (None, None) => return option_or_test(other),
        },
    })
}

/// A group of options that is a topic of its own.
struct OptionGroup {
    topic: &'static str,
    /// Headings of its options.
    headings: &'static [&'static str],
    example: &'static str,
}

/// The groups in the order of the main help.
const GROUPS: &[OptionGroup] = &[
    OptionGroup {
        topic: "device",
        headings: &["Device and connection"],
        example: "rperf -i mlx5_1 -cm1 node1 rc_bw",
    },
    OptionGroup {
        topic: "messages",
        headings: &["Test"],
        example: "rperf -m 1M -t 10 --qps 4 node1 rc_bw",
    },
    OptionGroup {
        topic: "sweeps",
        headings: &["Sweeps"],
        example: "rperf --sizes 2..8M node1 rc_bw rc_lat",
    },
    OptionGroup {
        topic: "tuning",
        headings: &["Tuning"],
        example: "rperf --post-list 64 --cpu-affinity 2 node1 rc_bw",
    },
    OptionGroup {
        topic: "waiting",
        headings: &["Waiting"],
        example: "rperf --wait poll node1 rc_lat",
    },
    OptionGroup {
        topic: "limits",
        headings: &["Limits (exit status 3 if a result exceeds one)"],
        example: "rperf --min-bw 90% node1 rc_bw",
    },
    OptionGroup {
        topic: "output",
        headings: &["Output, for the whole run"],
        example: "rperf --json --interval 1 -t 60 node1 rc_bw",
    },
    OptionGroup {
        topic: "sockets",
        headings: &["Tests over sockets"],
        example: "rperf --parallel 4 node1 tcp_bw",
    },
    OptionGroup {
        topic: "server",
        headings: &["Server", "Client and server"],
        example: "rperf --allow 10.0.0.0/8 --max-time 1h",
    },
];

fn group(topic: &str) -> Option<&'static OptionGroup> {
    GROUPS.iter().find(|group| group.topic == topic)
}

impl OptionGroup {
    fn has(&self, arg: &clap::Arg) -> bool {
        let heading = arg.get_help_heading();
        heading.is_some_and(|heading| self.headings.contains(&heading))
    }

    /// Returns all options of the group, and an example.
    fn text(&self) -> String {
        let command = command().mut_args(|arg| {
            let is_shown = self.has(&arg);
            arg.hide(!is_shown)
        });
        let mut command = command.override_usage(self.example.to_owned());
        let text = command.render_help().to_string();
        let options = text.split_once("Usage: ").map_or("", |(_, rest)| rest);
        format!("Example: {options}")
    }
}

/// Width of the names of the options in the main help.
const NAMES: usize = 34;

/// Returns the common options by group.
fn main_text() -> String {
    let command = command();
    let usage = command.clone().render_usage().to_string();
    let mut text = format!(
        "Measures RDMA bandwidth and latency between two hosts, or within one.\n\n{usage}\n"
    );
    for group in GROUPS {
        let is_shown = |arg: &&clap::Arg| group.has(arg) && !arg.is_hide_set();
        let heading = group.headings[0].split(" (").next().unwrap_or_default();
        let title = format!("\n{heading} (rperf --help {}):\n", group.topic);
        text.push_str(&title);
        let options = command.get_arguments().filter(is_shown);
        options.for_each(|arg| text.push_str(&option_line(arg)));
    }
    text + "\n`rperf --help TOPIC` has more about each group, and about tests, examples, options, opts (also the\nrarely used ones), qperf, perftest, mesh, monitor, tune, compare, report, a test, or an option.\n"
}

/// Returns the names of an option and its help up to the details and the default.
fn option_line(arg: &clap::Arg) -> String {
    let short = arg
        .get_short()
        .map_or_else(String::new, |letter| format!("-{letter}, "));
    let name = format!(
        "{short}--{}{}",
        arg.get_long().unwrap_or_default(),
        value_of(arg, ["", ""])
    );
    let help = help_of(arg);
    let help = help.split([';', '[']).next().unwrap_or_default().trim_end();
    let column = NAMES.max(name.len() + 2);
    let lines = wrap(help, 98 - column).join(&format!("\n{:1$}", "", column + 2));
    format!("  {name:<column$}{lines}\n")
}

const SHORT_HELP: &str = "\
Examples:
    rperf                          run a server
    rperf node1 rc_bw rc_lat       measure bandwidth and latency to node1
    rperf node1 tcp_bw tcp_lat     the same over TCP
    rperf mesh node1,node2,node3 rc_bw
                                   measure all pairs of hosts

Each of these has more: rperf --help, --help tests, --help examples, --help TEST, --help OPTION,
--help qperf, --help perftest, rperf mesh --help, monitor --help, tune --help, compare --help,
report --help";

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
        let help = help_of(&arg);
        arg.help(format!("{help} ({name})"))
    })
}

/// Returns the help that fits on one screen.
fn short() -> String {
    let command = command().mut_args(|arg| {
        let is_common = arg
            .get_long()
            .and_then(option::find)
            .is_some_and(|option| option.entry.is_common);
        let help = help_of(&arg);
        // The part before the details and the default.
        let end = help.find([';', '[']).unwrap_or(help.len());
        arg.hide(!is_common)
            .help_heading(Some("Common options"))
            .help(help[..end].trim_end().to_owned())
    });
    command.after_help(SHORT_HELP).render_help().to_string()
}

/// Returns the subcommands of rperf, each with its name.
pub(crate) fn subcommands() -> [(&'static str, clap::Command); 5] {
    [
        ("mesh", mesh::command()),
        ("monitor", monitor::command()),
        ("tune", tune::command()),
        ("compare", records::compare_command()),
        ("report", records::report_command()),
    ]
}

/// Returns the help of a subcommand; `None` if there is none of this name.
fn subcommand_help(name: &str) -> Option<String> {
    let (_, command) = subcommands().into_iter().find(|(own, _)| *own == name)?;
    Some(command.term_width(100).render_help().to_string())
}

pub(crate) const TOPICS: &str = "main, categories, tests, options, opts, examples, device, messages, sweeps, tuning, waiting, limits, output, sockets, server, qperf, perftest, compare, report, mesh, monitor, tune";

/// Returns a text as lines of at most 100 columns, which begin with spaces.
fn indented(text: &str, spaces: usize) -> String {
    let lines = wrap(text, 100 - spaces);
    let line = |line: String| format!("{:spaces$}{line}\n", "");
    lines.into_iter().map(line).collect()
}

/// Returns each option with its short qperf name.
fn summary() -> String {
    let line = |option: &KnownOption| {
        let long = option.long();
        let short = qperf::short(long).map_or_else(String::new, |short| format!(" ({short})"));
        let help = indented(&help_of(option.arg), 46);
        let names = format!("--{long}{}{short}", value_of(option.arg, ["", ""]));
        format!("{names:<44}  {}", help.trim_start())
    };
    option::all().map(line).collect()
}

/// Returns the help text of an option.
fn help_of(arg: &clap::Arg) -> String {
    arg.get_help().map(ToString::to_string).unwrap_or_default()
}

/// Returns a space and the name of the value of an option between `brackets`, or nothing.
fn value_of(arg: &clap::Arg, [open, close]: [&str; 2]) -> String {
    match arg.get_value_names() {
        Some(names) if arg.get_action().takes_values() => {
            format!(" {open}{}{close}", names.join(" "))
        }
        _ => String::new(),
    }
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
fn option_or_test(topic: &str) -> Result<String> {
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
    let Some(option) = named.and_then(|long| option::find(&long)) else {
        return Err(Error::usage(format!(
            "no help topic named `{topic}`; available: {TOPICS}, and the name of each test and option"
        )));
    };
    let (long, value) = (option.long(), value_of(option.arg, ["<", ">"]));
    let mut text = format!("    --{long}{value}\n{}", indented(&help_of(option.arg), 8));
    if let Some(tests) = scope::kind(long) {
        text.push_str(&indented(&format!("Acts on {tests}"), 8));
    }
    if let Scope::Tests(class) = option.entry.scope {
        let (required, sample) = option.sample();
        let has_effect = |name: &&str| Test::from_name(name).is_ok_and(class.contains);
        let test = Test::names().find(has_effect).unwrap_or_default();
        let words = ["Example: rperf", required, &sample, "node1", test];
        let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
        text.push_str(&indented(&words.join(" "), 8));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use test_support::text::assert_contains;

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
        let visible = option::all()
            .filter(|option| !option.arg.is_hide_set())
            .count();
        assert!(visible <= 65, "{visible}");
    }

    #[test]
    fn the_main_help_has_each_common_option() {
        let help = requested("--help").unwrap();
        assert!(help.lines().count() <= 120, "{}", help.lines().count());
        assert_eq!(requested("help"), Some(help.clone()));
        let groups = |arg: &clap::Arg| GROUPS.iter().filter(|group| group.has(arg)).count();
        for KnownOption { arg, .. } in option::all() {
            let name = arg.get_long().unwrap();
            assert_eq!(groups(arg), 1, "{name}");
            let line = help.lines().find(|line| {
                let names = line.split_whitespace().take(2);
                names.into_iter().any(|word| word == format!("--{name}"))
            });
            assert_eq!(line.is_some(), !arg.is_hide_set(), "{name}");
        }
        for group in GROUPS {
            let text = requested(&format!("--help {}", group.topic)).unwrap();
            let start = format!("Example: {}\n", group.example);
            assert!(text.starts_with(&start), "{text}");
            let args = group.example.split(' ').skip(1);
            crate::rperf::args::parse(args).unwrap();
        }
    }

    #[test]
    fn no_line_of_the_help_is_longer_than_100_columns() {
        let options = option::all().map(|option| option.long().to_owned());
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
        assert_contains(&help, &["Acts on tests over RC, UC, XRC and DC"]);
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
        let help = requested("node rc_bw --help").unwrap();
        assert!(help.contains("--msg-size"), "{help}");
        assert_eq!(requested("node rc_bw"), None);
    }
}
