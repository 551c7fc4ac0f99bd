//! Hints for options that other tools have under this name: former versions of qperf, and perftest.
//! Options of iperf3 have no hints: `docs/coming-from.md` lists their equivalents.

use base::error::Error;

use super::qperf::{self, OptionName};
use super::{perftest, scope};

/// Returns the meanings of an option in other tools.
pub(super) fn hint(name: &str) -> Option<String> {
    let former = match qperf::lookup(name) {
        OptionName::Former(long) => {
            let option = scope::display(long);
            Some(format!("the former {name} of qperf is {option}"))
        }
        _ => None,
    };
    let hints: Vec<String> = former
        .into_iter()
        .chain(perftest::option_hint(name))
        .collect();
    (!hints.is_empty()).then(|| hints.join("; "))
}

/// Returns a hint for a letter with its value in one word, such as `-q4`, or for several letters.
fn attached_hint(name: &str) -> Option<String> {
    let (end, _) = name.char_indices().nth(2)?;
    let (letter, value) = name.split_at(end);
    match qperf::lookup(letter) {
        OptionName::Value(_) => Some(format!("the value is a separate word: {letter} {value}")),
        _ => hint(letter),
    }
}

/// Returns the options of a command line that perftest has under the same name with another
/// meaning, if one of the unknown options shows that the line is one of perftest.
fn collisions<'a>(args: &'a [String], unknown: &[&str]) -> impl Iterator<Item = String> + 'a {
    let is_of_perftest = unknown.iter().any(|name| {
        let is_unknown = qperf::lookup(name) == OptionName::Unknown;
        is_unknown && perftest::option_hint(name).is_some()
    });
    let args = args.iter().filter(move |_| is_of_perftest);
    args.filter_map(|arg| match qperf::lookup(arg) {
        OptionName::Value(own) => perftest::collision(arg, &own),
        _ => None,
    })
}

/// Returns the error for a command line with unknown options, with a hint for each.
pub(super) fn unknown_options(args: &[String]) -> Error {
    let mut names: Vec<&str> = Vec::new();
    for arg in args
        .iter()
        .filter(|arg| arg.len() > 1 && arg.starts_with('-'))
    {
        let name = arg.split('=').next().unwrap_or(arg);
        let is_unknown = matches!(
            qperf::lookup(name),
            OptionName::Unknown | OptionName::Former(_)
        );
        if is_unknown && !names.contains(&name) {
            names.push(name);
        }
    }
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let plural = if names.len() == 1 { "" } else { "s" };
    let hints = names.iter().filter_map(|name| {
        let similar = || Some(format!("did you mean {}?", qperf::suggest(name)?));
        hint(name).or_else(similar).or_else(|| attached_hint(name))
    });
    let hints: Vec<String> = hints.chain(collisions(args, &names)).collect();
    Error::usage(format!("no option{plural} named {}", quoted.join(", "))).with_help(
        if hints.is_empty() {
            "`rperf --help` lists the options".to_owned()
        } else {
            hints.join("; ")
        },
    )
}
