//! Separates host, tests and options, and assigns the options to the tests.

use base::error::{Error, Result};
use base::units::{Size, parse_time};
use measure::spec::test::Test;

use super::other_tools;
use super::qperf::{self, OptionName};
use super::scope;
use super::values::on_off;

/// The parts of a command line. Each option is one word in its long form (`--name=value` or
/// `--name`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SplitArgs {
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
pub(crate) fn split(args: &[String]) -> Result<SplitArgs> {
    let mut split = SplitArgs::default();
    let mut words = args.iter().map(String::as_str);
    while let Some(arg) = words.next() {
        if arg == "--" {
            continue;
        }
        if arg.len() > 1 && arg.starts_with('-') {
            add_option(args, arg, &mut words, &mut split)?;
        } else if split.host.is_none() && split.tests.is_empty() && !Test::is_name(arg) {
            split.host = Some(arg.to_owned());
        } else {
            let test = Test::from_name(arg).map_err(|error| match &split.host {
                None if Test::suggest(arg).is_none() => {
                    let tests: Vec<&str> = split.tests.iter().map(|run| run.0.name()).collect();
                    Error::usage(format!("no test named `{arg}`")).with_help(format!(
                        "the host comes before the tests: `rperf {arg} {}`",
                        tests.join(" ")
                    ))
                }
                Some(host) if split.tests.is_empty() && Test::suggest(arg).is_none() => {
                    let hint = match Test::suggest(host) {
                        Some(test) => format!("did you mean the test {test}?"),
                        None => "`rperf --help tests` lists the tests".to_owned(),
                    };
                    error.with_help(format!(
                        "`{host}` was taken as the name of the server's host; {hint}"
                    ))
                }
                _ => error,
            })?;
            split.tests.push((test, split.options.clone()));
        }
    }
    // Options after the last test apply to all tests.
    let before_last_test = split.tests.last().map_or(0, |t| t.1.len());
    for (_, options) in &mut split.tests {
        options.extend_from_slice(&split.options[before_last_test..]);
    }
    check_time(args, &split)?;
    Ok(split)
}

/// Smallest value of `-t` that may be a depth, as in perftest: a power of two from here on.
const MIN_DEPTH: u32 = 64;

/// Refuses a time that may be a number of requests, if a test has such a number.
fn check_time(args: &[String], split: &SplitArgs) -> Result<()> {
    let mut values = args.windows(2).filter(|words| words[0] == "-t");
    let ambiguous = values.find_map(|words| {
        let number = words[1].parse::<u32>().ok()?;
        (number >= MIN_DEPTH && number.is_power_of_two()).then_some(number)
    });
    let has_depth = |(test, _): &(Test, _)| scope::acts_on("--depth", *test);
    match ambiguous.filter(|_| split.tests.iter().any(has_depth)) {
        Some(n) => Err(Error::usage(format!(
            "-t {n} is a time in seconds here, and a depth of queues in perftest"
        ))
        .with_help(format!("specify -t {n}s or --depth {n}"))),
        None => Ok(()),
    }
}

/// Adds the option `arg` to `split`. If `arg` does not contain the value of the option, the value
/// is the next word of `rest`.
fn add_option<'a>(
    args: &[String],
    arg: &'a str,
    rest: &mut impl Iterator<Item = &'a str>,
    split: &mut SplitArgs,
) -> Result<()> {
    let (name, inline) = match arg.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (arg, None),
    };
    // A host may have the name of a test.
    let takes_any_word = matches!(name, "-H" | "--host");
    let mut value = || {
        inline
            .or_else(|| rest.next())
            .filter(|value| inline.is_some() || takes_any_word || !is_next_word(value))
            .ok_or_else(|| {
                let error = Error::usage(format!("{name} needs a value"));
                match other_tools::hint(name).filter(|_| !name.starts_with("--")) {
                    Some(hint) => error.with_help(hint),
                    None => error,
                }
            })
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
            check_meaning(name, value)?;
            // `--wait` is a way to wait, and in early versions of qperf the time of -ws.
            let long = if name == "--wait" && parse_time(value).is_ok() {
                "wait-server".into()
            } else {
                long
            };
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
        OptionName::Ignored => return Ok(()),
        OptionName::Unsupported { reason, help } => {
            return Err(Error::usage(format!("{name}: {reason}")).with_help(help));
        }
        OptionName::Unknown | OptionName::Former(_) => {
            return Err(other_tools::unknown_options(args));
        }
    };
    split.options.push(long);
    Ok(())
}

/// Returns `true` if a word is an option or a test, so that it is not the value of an option.
fn is_next_word(word: &str) -> bool {
    let is_option = word.strip_prefix('-').is_some_and(|rest| {
        let first = rest.trim_start_matches('-').chars().next();
        first.is_some_and(char::is_alphabetic)
    });
    is_option || Test::is_name(word)
}

/// Checks the value of a name that perftest has with another meaning, where the value shows it.
fn check_meaning(name: &str, value: &str) -> Result<()> {
    let is_number = value.parse::<u32>().is_ok();
    let (meaning, is_other) = match name {
        "-i" => ("the name of a device", is_number),
        "-f" => {
            let is_on_off = on_off(value).is_ok() && (!is_number || matches!(value, "0" | "1"));
            ("on or off", !is_on_off)
        }
        "-e" | "-g" => ("a number", !is_number),
        "-n" => (
            "a number of messages",
            !is_number && value.parse::<Size>().is_ok(),
        ),
        _ => return Ok(()),
    };
    match other_tools::hint(name).filter(|_| is_other) {
        Some(hint) => {
            Err(Error::usage(format!("{name} {value}: expected {meaning}")).with_help(hint))
        }
        None => Ok(()),
    }
}
