//! Option names of qperf and the long option that each one stands for.

use std::borrow::Cow;

use super::option::{self, KnownOption};
use super::per_end::End;
use base::spelling::similar;

/// Meaning of an option name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OptionName {
    /// A long option (without dashes) that takes a value, or the part before a value for one end
    /// (`id=local`).
    Value(Cow<'static, str>),
    /// A long option that may have a value.
    OptionalValue(Cow<'static, str>),
    /// A long option that takes no value, or that includes its value (`flip=on`).
    Flag(Cow<'static, str>),
    /// An option of qperf that rperf does not support.
    Unsupported {
        /// The reason why it is not supported.
        reason: &'static str,
        /// An alternative.
        help: &'static str,
    },
    /// An option of qperf that is accepted without effect.
    Ignored,
    /// A name that early versions of qperf had for this long option.
    Former(&'static str),
    /// Neither an option of rperf nor of qperf.
    Unknown,
}

/// Names of the option that names the host of the server. `split` takes it from the command line.
const HOST: &[&str] = &["-H", "--host"];

/// Options of qperf that are accepted without effect, so that its command lines work. `-un` labels
/// the figures of both ends `loc` and `rem`, for programs that read the text.
const IGNORED: &[&str] = &["-un", "--unify-nodes"];

/// Options of qperf that rperf does not support, each with the reason and an alternative.
const UNSUPPORTED: &[(&str, (&str, &str))] = &[
    ("-ap", NO_PATH_MIGRATION),
    ("-lap", NO_PATH_MIGRATION),
    ("-rap", NO_PATH_MIGRATION),
    ("--alt-port", NO_PATH_MIGRATION),
    ("--loc-alt-port", NO_PATH_MIGRATION),
    ("--rem-alt-port", NO_PATH_MIGRATION),
    ("-sp", NO_PATH_BITS),
    ("-lsp", NO_PATH_BITS),
    ("-rsp", NO_PATH_BITS),
    ("--src-path-bits", NO_PATH_BITS),
    ("--loc-src-path-bits", NO_PATH_BITS),
    ("--rem-src-path-bits", NO_PATH_BITS),
    ("-D", NO_DEBUG_OUTPUT),
    ("--debug", NO_DEBUG_OUTPUT),
];

const NO_PATH_MIGRATION: (&str, &str) = (
    "rperf does not support path migration",
    "select the port to measure with --id (-i) DEVICE:PORT",
);
const NO_PATH_BITS: (&str, &str) = (
    "rperf does not support source path bits",
    "packets have the first LID of the port; select another port with --id (-i) DEVICE:PORT",
);
const NO_DEBUG_OUTPUT: (&str, &str) = (
    "rperf has no debug output",
    "use -v, which prints how a test ran and lets a server log each test; perftest's -D, --duration is --time (-t)",
);

/// Prefixes of the names of options for one end, such as `-li` and `--rem-timeout`.
const ENDS: &[(&str, &str, End)] = &[
    ("--local-", "--", End::Local),
    ("--loc-", "--", End::Local),
    ("-l", "-", End::Local),
    ("--remote-", "--", End::Remote),
    ("--rem-", "--", End::Remote),
    ("-r", "-", End::Remote),
];

/// Looks up the name of an option: among the names of qperf, among the long options, and as one of
/// these for one end. Underscores in long names count as dashes.
pub(crate) fn lookup(name: &str) -> OptionName {
    let long = name
        .strip_prefix("--")
        .map(|n| format!("--{}", n.replace('_', "-")));
    let name = long.as_deref().unwrap_or(name);
    match lookup_for_both(name) {
        OptionName::Unknown => lookup_for_one(name).unwrap_or(OptionName::Unknown),
        found => found,
    }
}

/// Looks up the name of an option for one end.
fn lookup_for_one(name: &str) -> Option<OptionName> {
    let (end, both) = ENDS.iter().find_map(|(prefix, dashes, end)| {
        let rest = name.strip_prefix(prefix)?;
        Some((*end, lookup_for_both(&format!("{dashes}{rest}"))))
    })?;
    let add = |target: &str| {
        let (option, value) = target.split_once('=').unwrap_or((target, ""));
        let with_end = format!("{option}={}{value}", end.prefix());
        let is_per_end = option::find(option).is_some_and(KnownOption::is_per_end);
        is_per_end.then(|| Cow::Owned(with_end.trim_end_matches('=').to_owned()))
    };
    match both {
        OptionName::Value(target) => add(&target).map(OptionName::Value),
        OptionName::Flag(target) => add(&target).map(OptionName::Flag),
        _ => None,
    }
}

fn lookup_for_both(name: &str) -> OptionName {
    if HOST.contains(&name) {
        return OptionName::Value("host".into());
    }
    if IGNORED.contains(&name) {
        return OptionName::Ignored;
    }
    if let Some((reason, help)) = find(UNSUPPORTED, name) {
        return OptionName::Unsupported { reason, help };
    }
    let found = option::all().find_map(|option| {
        let (entry, long) = (option.entry, option.long());
        if let Some(value) = find(entry.shorthands, name) {
            Some(OptionName::Flag(format!("{long}={value}").into()))
        } else if entry.former == Some(name) {
            Some(OptionName::Former(long))
        } else if entry.names.contains(&name) || name.strip_prefix("--") == Some(long) {
            let is_optional = option
                .arg
                .get_num_args()
                .is_some_and(|n| n.min_values() == 0);
            Some(match option.arg.get_action().takes_values() {
                true if is_optional => OptionName::OptionalValue(long.into()),
                true => OptionName::Value(long.into()),
                false => OptionName::Flag(long.into()),
            })
        } else {
            None
        }
    });
    found.unwrap_or(OptionName::Unknown)
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table
        .iter()
        .find(|entry| entry.0 == name)
        .map(|entry| entry.1)
}

/// Returns the text of `--help qperf`: the names of qperf, each with its long option.
pub(crate) fn table() -> String {
    let line = |name: &str, long: &str| format!("    {name:<24}--{long}\n");
    let mut text = String::new();
    for option in option::all() {
        let (entry, long) = (option.entry, option.long());
        text.extend(entry.names.iter().map(|name| line(name, long)));
        let with_value = |row: &(&str, &str)| line(row.0, &format!("{long}={}", row.1));
        text.extend(entry.shorthands.iter().map(with_value));
    }
    text.extend(HOST.iter().map(|name| line(name, "host")));
    text + "    -un, --unify-nodes      accepted without effect\n    -lX, --loc-X           --X local=… for each of these names with a value for one end\n    -rX, --rem-X           --X remote=…\n"
}

/// Returns the first short name that qperf has for a long option.
pub(crate) fn short(long: &str) -> Option<&'static str> {
    let mut names = option::find(long)?.entry.names.iter().copied();
    names.find(|name| !name.starts_with("--"))
}

/// Names that other programs have for the file with the hosts.
const HOSTS_FILE: &[&str] = &["host-file", "hostfile", "hosts-file"];

/// Returns the long option that another program has under this name, or that is most similar to a
/// misspelled one, if any is similar enough.
pub(crate) fn suggest(name: &str) -> Option<String> {
    let name = name.strip_prefix("--")?.replace('_', "-");
    if HOSTS_FILE.contains(&name.as_str()) {
        return Some("--hosts-file of `rperf mesh` or `rperf monitor`".to_owned());
    }
    if name == "auto" {
        return Some("`rperf tune`".to_owned());
    }
    let has_synonym = |option: &&KnownOption| option.entry.synonyms.contains(&name.as_str());
    let long = match option::all().find(has_synonym) {
        Some(option) => option.long(),
        None => similar(&name, option::all().map(KnownOption::long))?,
    };
    Some(format!("--{long}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_is_listed_twice() {
        let mut all: Vec<&str> = UNSUPPORTED
            .iter()
            .map(|row| row.0)
            .chain(HOST.to_owned())
            .collect();
        for option in option::all() {
            let entry = option.entry;
            all.extend(entry.names.iter().chain(&entry.former));
            all.extend(entry.shorthands.iter().map(|row| row.0));
        }
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
