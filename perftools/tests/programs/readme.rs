//! The command lines of the README are valid.

use clap::Parser;
use perftools::ribinfo::args::Info;
use perftools::ribping::args::PingArgs;
use perftools::rperf::args;

use crate::common::readme_commands;

#[test]
fn commands_of_the_readme_are_valid() {
    let mut seen = (0, 0, 0);
    for line in readme_commands() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["ribping", _, ..] => {
                let args = PingArgs::try_parse_from(&words)
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
                perftools::ribping::session::PingConfig::new(&args)
                    .unwrap_or_else(|error| panic!("{line}: {error}"));
                seen.0 += 1;
            }
            ["ribinfo", _, ..] => {
                Info::try_parse_from(&words).unwrap_or_else(|error| panic!("{line}: {error}"));
                seen.1 += 1;
            }
            // Redirections are not arguments.
            ["rperf", rest @ ..] => {
                let words = rest
                    .iter()
                    .take_while(|word| !word.starts_with('>'))
                    .copied();
                args::parse(words).unwrap_or_else(|error| panic!("{line}: {error}"));
                seen.2 += 1;
            }
            _ => {}
        }
    }
    assert!(seen.0 >= 8 && seen.1 >= 10 && seen.2 >= 16, "{seen:?}");
}
