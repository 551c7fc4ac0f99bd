//! The command lines of the three tools as clap commands, for manual pages and completions (`cargo
//! run -p perftools --example manuals`).

use checks::CHECKS;
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Arg, ArgAction, Command, CommandFactory};
use measure::spec::test::Test;

use crate::ribinfo::args::Info;
use crate::ribping::args::PingArgs;
use crate::rperf::args::command_line::Options;
use crate::rperf::args::help::{EXAMPLES, TOPICS, subcommands};

/// Returns the command of each tool.
pub fn all() -> [Command; 3] {
    [rperf(), PingArgs::command(), ribinfo()]
}

/// Returns the command of rperf, including the arguments that rperf parses without clap.
fn rperf() -> Command {
    let host = Arg::new("host")
        .value_name("HOST")
        .help("Host name or address of the rperf server [default: run both ends on this host]");
    let tests = Arg::new("tests")
        .value_name("TEST")
        .num_args(0..)
        .value_parser(PossibleValuesParser::new(Test::names()))
        .help("Tests to run, in this order; an option between two tests applies to the tests after it [default: run a server]");
    let help = Arg::new("help")
        .short('h')
        .long("help")
        .value_name("TOPIC")
        .num_args(0..=1)
        .help(format!(
            "Print help about a topic: {TOPICS}, or the name of a test or option [default: main]"
        ));
    let subcommands = subcommands().map(|(name, command)| command.name(name));
    // A manual page has the rarely used options too.
    Options::command()
        .mut_args(|arg| arg.hide(false))
        .subcommands(subcommands)
        .arg(host)
        .arg(tests)
        .arg(help)
        .arg(
            Arg::new("version")
                .short('V')
                .long("version")
                .action(ArgAction::SetTrue)
                .help("Print the version"),
        )
        .after_help(format!(
            "Examples:\n{EXAMPLES}\nThe option names of qperf are accepted everywhere."
        ))
}

fn ribinfo() -> Command {
    let checks = CHECKS
        .iter()
        .map(|check| PossibleValue::new(check.name).help(check.about));
    Info::command().mut_subcommand("check", |check| {
        check.mut_arg("checks", |arg| {
            arg.value_parser(PossibleValuesParser::new(checks))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_are_valid_for_clap() {
        for command in all() {
            command.debug_assert();
        }
    }
}
