//! Tells host, tests and options apart, and which options hold for which test.

use super::qperf::{self, Spelling};
use crate::common::error::{Error, Result};
use crate::rperf::spec::test::Test;

/// The command line, sorted. Options are in their long form, one word each (`--name=value`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitArgs {
    /// The host, if one is named.
    pub host: Option<String>,
    /// The tests, each with the options before it and those after the last test.
    pub tests: Vec<(Test, Vec<String>)>,
    /// All options.
    pub options: Vec<String>,
}

/// Sorts the words of a command line.
///
/// # Errors
/// An option without its value, a word that is neither host nor test, an option of qperf that means
/// nothing here.
pub fn split(args: &[String]) -> Result<SplitArgs> {
    let mut words = SplitArgs::default();
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--" {
            continue;
        }
        if arg.len() > 1 && arg.starts_with('-') {
            option(arg, &mut args, &mut words)?;
        } else if words.host.is_none() && words.tests.is_empty() && !Test::is_name(arg) {
            words.host = Some(arg.to_owned());
        } else {
            words
                .tests
                .push((Test::from_name(arg)?, words.options.clone()));
        }
    }
    // What stands after the last test has not reached any test yet: it holds for all.
    let seen = words.tests.last().map_or(0, |t| t.1.len());
    for (_, options) in &mut words.tests {
        options.extend_from_slice(&words.options[seen..]);
    }
    Ok(words)
}

fn option<'a>(
    arg: &'a str,
    rest: &mut impl Iterator<Item = &'a str>,
    words: &mut SplitArgs,
) -> Result<()> {
    let (name, inline) = match arg.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (arg, None),
    };
    let mut value = || {
        inline
            .or_else(|| rest.next())
            .ok_or_else(|| Error::usage(format!("{name} needs a value")))
    };
    let long = match qperf::spelling(name) {
        Spelling::Value(long) if long == "host" => {
            let host = value()?.to_owned();
            if words.host.as_ref().is_some_and(|h| *h != host) {
                return Err(Error::usage(format!(
                    "two hosts: {} and {host}; one run has one server",
                    words.host.take().unwrap_or_default()
                )));
            }
            words.host = Some(host);
            return Ok(());
        }
        Spelling::Value(long) => format!("--{long}={}", value()?),
        Spelling::Flag(long) => match inline {
            None => format!("--{long}"),
            Some(_) => return Err(Error::usage(format!("{name} takes no value"))),
        },
        Spelling::Refused(reason) => return Err(Error::usage(format!("{name}: {reason}"))),
        Spelling::Unknown => {
            let hint = qperf::suggest(name)
                .map_or_else(String::new, |near| format!("did you mean {near}? "));
            return Err(Error::usage(format!(
                "{name}: no such option; {hint}`rperf --help` lists them"
            )));
        }
    };
    words.options.push(long);
    Ok(())
}
