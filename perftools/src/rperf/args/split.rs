//! Separates host, tests and options, and assigns the options to the tests.

use base::error::{Error, Result};
use measure::spec::test::Test;

use super::perftest;
use super::qperf::{self, OptionName};

/// The parts of a command line. Each option is one word in its long form (`--name=value` or
/// `--name`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SplitArgs {
    /// Host of the server, if one is named.
    pub host: Option<String>,
    /// Tests, each with its options: those before the test, and those after the last test.
    pub tests: Vec<(Test, Vec<String>)>,
    /// All options.
    pub options: Vec<String>,
}

/// Splits a command line into its parts.
///
/// # Errors
/// Returns a usage error in these cases:
/// - an option is unknown or unsupported, lacks its value, or has a value that it does not take;
/// - a word after the host is not the name of a test;
/// - two hosts are named.
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
    let before_last_test = split.tests.last().map_or(0, |t| t.1.len());
    for (_, options) in &mut split.tests {
        options.extend_from_slice(&split.options[before_last_test..]);
    }
    Ok(split)
}

/// Adds the option `arg` to `split`. If `arg` does not contain the value of the option, the value
/// is the next word of `rest`.
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
        OptionName::Value(long) => {
            let value = value()?;
            if name == "-P" && value.parse().is_ok_and(|n: u32| n > 1) {
                return Err(Error::usage(format!(
                    "-P {value}: -P is qperf's --poll, which is 0 or 1"
                ))
                .with_help(format!(
                    "for {value} parallel streams of a test over sockets, use --parallel {value}"
                )));
            }
            format!("--{long}={value}")
        }
        OptionName::OptionalValue(long) => match inline {
            None => format!("--{long}"),
            Some(value) => format!("--{long}={value}"),
        },
        OptionName::Flag(long) => match inline {
            None => format!("--{long}"),
            Some(_) => return Err(Error::usage(format!("{name} takes no value"))),
        },
        OptionName::Unsupported { reason, help } => {
            return Err(Error::usage(format!("{name}: {reason}")).with_help(help));
        }
        OptionName::Unknown => {
            let error = Error::usage(format!("no option named `{name}`"));
            let help = perftest::option_hint(name)
                .or_else(|| Some(format!("did you mean {}?", qperf::suggest(name)?)));
            return Err(error
                .with_help(help.unwrap_or_else(|| "`rperf --help` lists the options".to_owned())));
        }
    };
    split.options.push(long);
    Ok(())
}
