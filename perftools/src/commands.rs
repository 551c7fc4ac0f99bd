//! The three tools as clap describes them, for manual pages and completions (`cargo run -p
//! perftools --example manuals`).

use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, Command, CommandFactory};

use crate::ribinfo::args::Info;
use crate::ribinfo::check::SUBJECTS;
use crate::ribping::args::PingArgs;
use crate::rperf::args::help::{EXAMPLES, TOPICS};
use crate::rperf::args::options::Options;
use crate::rperf::spec::test::Test;

/// Each tool.
pub fn all() -> [Command; 3] {
    [rperf(), PingArgs::command(), ribinfo()]
}

/// The words that rperf tells apart itself are arguments here.
fn rperf() -> Command {
    let host = Arg::new("host")
        .value_name("HOST")
        .help("Where an rperf server runs; none: both ends here");
    let tests = Arg::new("tests")
        .value_name("TEST")
        .num_args(0..)
        .value_parser(PossibleValuesParser::new(Test::names()))
        .help("What to measure, in this order; an option behind one holds from the next on; none: be the server");
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .value_name("TOPIC")
        .num_args(0..=1)
        .help(format!(
            "The options, or a topic: {TOPICS}, a test, or an option"
        ));
    Options::command()
        .arg(host)
        .arg(tests)
        .arg(help)
        .arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::SetTrue)
                .help("Which version this is"),
        )
        .after_help(format!(
            "Examples:\n{EXAMPLES}\nqperf's spellings of the options are accepted everywhere."
        ))
}

fn ribinfo() -> Command {
    let subjects = SUBJECTS
        .iter()
        .map(|subject| PossibleValue::new(subject.name).help(subject.about));
    Info::command().mut_subcommand("check", |check| {
        check.mut_arg("subjects", |arg| {
            arg.value_parser(PossibleValuesParser::new(subjects))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_sound() {
        for command in all() {
            command.debug_assert();
        }
    }
}
