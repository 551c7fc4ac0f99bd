//! `--help [TOPIC]` and `--version`.

use clap::CommandFactory;

use super::options::Options;
use super::qperf::{self, Spelling};
use crate::common::error::{Error, Result};
use crate::common::units::Size;
use crate::rperf::spec::plan::Service;
use crate::rperf::spec::test::Test;

pub(crate) const EXAMPLES: &str =
    "    rperf                                 be the server, until `rperf HOST quit` from the same host or a signal
    rperf node1 rc_bw rc_lat              bandwidth and latency to node1
    rperf rc_bw rc_lat                    the same with both ends on this machine: is the device all right?
    rperf -i mlx5_1 node1 rc_bw           with a device of your choice (-ri for the server's)
    rperf -cm1 node1 rc_bw                connected by rdma_cm
    rperf node1 -m 1M -t 10 rc_bw -m 64 rc_lat
    rperf --verify -n 10000 node1 rc_bi_bw
                                          every byte is checked
    rperf --json node1 rc_bw rc_lat       for programs
    rperf -t 60 --interval 1 node1 rc_bw  a line a second; dips and stalls are named
    rperf --auto node1                    which settings are best, and what limits
    rperf --json --sizes 2..8M node1 rc_bw >new.json; rperf report old.json new.json -o page.html
                                          plots of two runs
";

/// The text that was asked for, if the command line asks for help or the version.
///
/// # Errors
/// The topic does not exist.
pub fn asked(args: &[String]) -> Result<Option<String>> {
    if args.iter().any(|a| a == "--version" || a == "-V") {
        return Ok(Some(format!("rperf {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let Some(at) = args.iter().position(|a| a == "--help" || a == "-h") else {
        return Ok(None);
    };
    match args.get(at + 1).map_or("main", String::as_str) {
        "main" | "options" => Ok(Some(format!(
            "{}\nTests:\n{}\nExamples:\n{EXAMPLES}\nqperf's spellings of the options are accepted everywhere.\n",
            Options::command().term_width(100).render_help(),
            Test::list()
        ))),
        "opts" => Ok(Some(summary())),
        "categories" => Ok(Some(format!(
            "rperf --help TOPIC, where TOPIC is one of\n    {TOPICS}\n    an option, in any spelling\n    a test:\n{}",
            Test::list()
        ))),
        "tests" => Ok(Some(Test::list())),
        "examples" => Ok(Some(EXAMPLES.to_owned())),
        "qperf" => Ok(Some(super::qperf::table())),
        other => about(other).map(Some),
    }
}

pub(crate) const TOPICS: &str = "main, categories, tests, options, opts, examples, qperf";

/// A line for each option, with qperf's spellings of it.
fn summary() -> String {
    let command = Options::command();
    let line = |arg: &clap::Arg| {
        let long = arg.get_long()?;
        let value = match arg.get_value_names() {
            Some(names) if arg.get_action().takes_values() => format!(" {}", names.join(" ")),
            _ => String::new(),
        };
        let short = qperf::short(long).map_or_else(String::new, |short| format!(" ({short})"));
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        Some(format!(
            "{:<44}  {help}\n",
            format!("--{long}{value}{short}")
        ))
    };
    command.get_arguments().filter_map(line).collect()
}

/// A test, with what is its own.
fn of_test(test: Test) -> String {
    let mut lines = vec![format!("{:<24}{}", test.name(), test.about())];
    if test.moves_data() {
        lines.push(format!(
            "messages of {} (--msg-size, -m), for 2 s (--time, -t), or so many (--messages, -n)",
            Size(test.default_size())
        ));
    }
    match test.plan().map(|plan| plan.service) {
        Some(Service::Rc | Service::Ud) => {
            lines.push(format!("{DEVICES}; by rdma_cm with --use-cm on (-cm1)"));
        }
        Some(Service::Uc | Service::Xrc) => lines.push(DEVICES.to_owned()),
        None if test.socket().is_some() => {
            lines.push(
                "over the interface that leads to HOST: --ip-port (-ip), --sock-buf-size (-sb)"
                    .to_owned(),
            );
        }
        None => {}
    }
    lines.push(format!("for example: rperf HOST {}", test.name()));
    format!("    {}\n", lines.join("\n    "))
}

const DEVICES: &str = "over an RDMA device: --id (-i), --local-id (-li), --remote-id (-ri)";

/// A test or an option, by any of its names.
fn about(topic: &str) -> Result<String> {
    if let Ok(test) = Test::from_name(topic) {
        return Ok(of_test(test));
    }
    let bare = topic.trim_start_matches('-');
    let named = [format!("--{bare}"), format!("-{bare}")]
        .into_iter()
        .find_map(|name| match qperf::spelling(&name) {
            Spelling::Value(long) | Spelling::Flag(long) => {
                Some(long.split('=').next().unwrap_or_default().to_owned())
            }
            _ => None,
        });
    let command = Options::command();
    let found = named.and_then(|long| {
        command
            .get_arguments()
            .find(|a| a.get_long() == Some(&long))
            .cloned()
    });
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
                "    --{}{value}\n        {help}\n",
                arg.get_long().unwrap_or_default()
            ))
        }
        None => Err(Error::usage(format!(
            "{topic}: no such help topic; there are {TOPICS}, and each test and option"
        ))),
    }
}
