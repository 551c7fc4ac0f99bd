//! `--help [TOPIC]` and `--version`.

use clap::CommandFactory;

use super::options::Options;
use crate::error::{Error, Result};
use crate::test::Test;

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
        "tests" => Ok(Some(Test::list())),
        "examples" => Ok(Some(EXAMPLES.to_owned())),
        other => Err(Error::usage(format!("{other}: no such help topic; there are main, tests, options and examples"))),
    }
}
