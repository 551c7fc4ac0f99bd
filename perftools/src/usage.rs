//! The errors of clap as errors of the programs: one line, and a remedy.

use std::process::ExitCode;

use base::error::Error;
use base::log::log;
use base::peer_text::printable_lines;
use clap::error::{ContextValue, ErrorKind};

/// Texts of the standard library for numbers, and what the value should be.
const NUMBERS: &[(&str, &str)] = &[
    ("invalid digit found in string", "expected a whole number"),
    (
        "cannot parse integer from empty string",
        "expected a whole number",
    ),
    (
        "number too large to fit in target type",
        "the number is too large",
    ),
    ("invalid float literal", "expected a number"),
];

/// Errors that do not name the expected words.
const UNCLEAR: &[ErrorKind] = &[
    ErrorKind::InvalidSubcommand,
    ErrorKind::MissingRequiredArgument,
    ErrorKind::UnknownArgument,
];

/// Prints the error of a command line, or the text that it requests, such as the help. Returns the
/// exit status. `hint` returns the remedy for a word that is not known.
pub(crate) fn exit(
    program: &str,
    refused: &clap::Error,
    hint: impl Fn(&str) -> Option<&'static str>,
) -> ExitCode {
    let is_for_stderr = refused.use_stderr();
    let is_text = refused.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    let mut message = error(refused);
    if is_text || !is_for_stderr {
        match refused.print() {
            Ok(()) => return ExitCode::from(if is_for_stderr { 2 } else { 0 }),
            Err(e) => message = Error::system("cannot write to standard output", &e),
        }
    }
    let mut words = refused.context().filter_map(|(_, value)| match value {
        ContextValue::String(word) => Some(word.as_str()),
        _ => None,
    });
    if let Some(hint) = words.find_map(hint) {
        message = message.with_help(hint);
    } else if message.help().is_none() && UNCLEAR.contains(&refused.kind()) {
        message = message.with_help(format!("see `{program} --help`"));
    }
    log(format_args!(
        "{program}: {}",
        printable_lines(&message.to_string())
    ));
    ExitCode::from(message.exit_status())
}

/// Converts an error of clap.
pub(crate) fn error(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let mut paragraphs = text.trim_start_matches("error: ").split("\n\n");
    let words = paragraphs.next().unwrap_or_default().split_whitespace();
    let mut cause = words.collect::<Vec<_>>().join(" ");
    if let Some((start, values)) = cause.split_once(" [possible values: ") {
        cause = format!("{start}; expected: {}", values.trim_end_matches(']'));
    }
    for (from, to) in NUMBERS {
        cause = cause.replace(from, to);
    }
    let cause = Error::usage(cause);
    let mut tips = paragraphs.filter_map(|text| text.trim().strip_prefix("tip: "));
    match tips.find_map(|tip| tip.split_once("similar")?.1.split_once(": ")) {
        Some((_, names)) => {
            let names = names.replace('\'', "").replace(", ", " or ");
            cause.with_help(format!("did you mean {names}?"))
        }
        None => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::error;
    use clap::{Arg, Command};

    #[test]
    fn an_error_of_clap_is_one_line_with_a_remedy() {
        let number = Arg::new("number").long("number");
        let command = Command::new("x")
            .arg(number.value_parser(clap::value_parser!(u32)))
            .arg(Arg::new("how").long("how").value_parser(["one", "two"]));
        for (line, expected) in [
            (
                "--number 1M",
                "invalid value '1M' for '--number <number>': expected a whole number",
            ),
            (
                "--number 99999999999",
                "invalid value '99999999999' for '--number <number>': 99999999999 is not in 0..=4294967295",
            ),
            (
                "--how three",
                "invalid value 'three' for '--how <how>'; expected: one, two",
            ),
            (
                "--numbers 1",
                "unexpected argument '--numbers' found; help: did you mean --number?",
            ),
            ("-q", "unexpected argument '-q' found"),
        ] {
            let words = std::iter::once("x").chain(line.split(' '));
            let refused = command.clone().try_get_matches_from(words).unwrap_err();
            assert_eq!(error(&refused).to_string(), expected, "{line}");
        }
    }
}
