//! Separates host, tests and options, and assigns the options to the tests.

use super::qperf::{self, OptionName};
use crate::common::error::{Error, Result};
use crate::rperf::spec::test::Test;

/// The parts of a command line. Options are in their long form, one word each (`--name=value`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitArgs {
    /// Host of the server, if one is named.
    pub host: Option<String>,
    /// Tests, each with the options before it and the options after the last test.
    pub tests: Vec<(Test, Vec<String>)>,
    /// All options.
    pub options: Vec<String>,
}

/// Splits a command line into its parts.
///
/// # Errors
/// A usage error if an option lacks its value, is unknown or unsupported, if a word after the host
/// is not the name of a test, or if two hosts are named.
pub fn split(args: &[String]) -> Result<SplitArgs> {
    let mut split = SplitArgs::default();
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--" {
            continue;
        }
        if arg.len() > 1 && arg.starts_with('-') {
            add_option(arg, &mut args, &mut split)?;
        } else if split.host.is_none() && split.tests.is_empty() && !Test::is_name(arg) {
            split.host = Some(arg.to_owned());
        } else {
            split
                .tests
                .push((Test::from_name(arg)?, split.options.clone()));
        }
    }
    // Options after the last test apply to all tests.
    let assigned = split.tests.last().map_or(0, |t| t.1.len());
    for (_, options) in &mut split.tests {
        options.extend_from_slice(&split.options[assigned..]);
    }
    Ok(split)
}

/// Adds the option `arg` to `split`; takes its value from `rest` if it is not part of `arg`.
fn add_option<'a>(
    arg: &'a str,
    rest: &mut impl Iterator<Item = &'a str>,
    split: &mut SplitArgs,
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
    let long = match qperf::lookup(name) {
        OptionName::Value(long) if long == "host" => {
            let host = value()?.to_owned();
            if split.host.as_ref().is_some_and(|h| *h != host) {
                return Err(Error::usage(format!(
                    "two hosts named, {} and {host}: a run has one server",
                    split.host.take().unwrap_or_default()
                )));
            }
            split.host = Some(host);
            return Ok(());
        }
        OptionName::Value(long) => format!("--{long}={}", value()?),
        OptionName::Flag(long) => match inline {
            None => format!("--{long}"),
            Some(_) => return Err(Error::usage(format!("{name} takes no value"))),
        },
        OptionName::Unsupported { reason, help } => {
            return Err(Error::usage(format!("{name}: {reason}")).with_help(help));
        }
        OptionName::Unknown => {
            let error = Error::usage(format!("no option named `{name}`"));
            return Err(error.with_help(match qperf::suggest(name) {
                Some(option) => format!("did you mean {option}?"),
                None => "`rperf --help` lists the options".to_owned(),
            }));
        }
    };
    split.options.push(long);
    Ok(())
}
