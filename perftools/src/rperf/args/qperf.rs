//! Option names of qperf and the long option that each one stands for.

use std::borrow::Cow;

use base::spelling::similar;
use clap::ArgAction;

use super::command_line::Options;
use super::per_end::End;

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

/// Names of options that take a value: the names of qperf, its obsolete names and its long names
/// that differ from those of rperf; and the names of perftest for multicast.
const VALUES: &[(&str, &str)] = &[
    ("-i", "id"),
    ("-m", "msg-size"),
    ("-n", "messages"),
    ("--no-msgs", "messages"),
    ("-t", "time"),
    ("-mt", "mtu"),
    ("--mtu-size", "mtu"),
    ("-to", "timeout"),
    ("-cm", "use-cm"),
    ("-cp", "wait"),
    ("--cq-poll", "wait"),
    ("--poll", "wait"),
    ("-e", "precision"),
    ("-lp", "port"),
    ("--listen-port", "port"),
    ("-ws", "wait-server"),
    ("--wait", "wait"),
    ("-oo", "loop"),
    ("-sl", "service-level"),
    ("-nr", "rd-atomic"),
    ("-sr", "static-rate"),
    ("--rate", "static-rate"),
    ("-ar", "access-received"),
    ("-Ar", "access-received"),
    ("--access-recv", "access-received"),
    ("-f", "flip"),
    ("-ca", "cpu-affinity"),
    ("--affinity", "cpu-affinity"),
    ("-ip", "ip-port"),
    ("-sb", "sock-buf-size"),
    ("-g", "multicast"),
    ("--mcg", "multicast"),
    ("-H", "host"),
    ("--host", "host"),
];

/// Names of options that take no value.
const FLAGS: &[(&str, &str)] = &[
    ("-ar1", "access-received=on"),
    ("-aro", "access-received=on"),
    ("-f1", "flip=on"),
    ("-fo", "flip=on"),
    ("-cm0", "use-cm=off"),
    ("-cm1", "use-cm=on"),
    ("-cmo", "use-cm=on"),
    ("-cp0", "wait=events"),
    ("-cp1", "wait=poll"),
    ("-cpo", "wait=poll"),
    ("--events", "wait=events"),
    ("-ub", "bits"),
    ("--use-bits-per-sec", "bits"),
    ("-uu", "unify-units"),
    ("-v", "verbose"),
    ("-vc", "verbose=conf"),
    ("--verbose-conf", "verbose=conf"),
    ("--verbose-stat", "verbose=stat"),
    ("--verbose-time", "verbose=time"),
    ("--verbose-used", "verbose=used"),
    ("--verbose-more", "verbose=more"),
    ("--verbose-more-conf", "verbose=more-conf"),
    ("--verbose-more-stat", "verbose=more-stat"),
    ("--verbose-more-time", "verbose=more-time"),
    ("--verbose-more-used", "verbose=more-used"),
    ("-vs", "verbose=stat"),
    ("-vt", "verbose=time"),
    ("-vu", "verbose=used"),
    ("-vv", "verbose=more"),
    ("-vvc", "verbose=more-conf"),
    ("-vvs", "verbose=more-stat"),
    ("-vvt", "verbose=more-time"),
    ("-vvu", "verbose=more-used"),
    ("-vC", "verbose=more-conf"),
    ("-vS", "verbose=more-stat"),
    ("-vT", "verbose=more-time"),
    ("-vU", "verbose=more-used"),
];

/// Options of qperf that are accepted without effect, so that its command lines work. `-un` labels
/// the figures of both ends `loc` and `rem`, for programs that read the text.
const IGNORED: &[&str] = &["-un", "--unify-nodes"];

/// Names that early versions of qperf had, and that mean something else in perftest.
const FORMER: &[(&str, &str)] = &[
    ("-M", "mtu"),
    ("-P", "wait"),
    ("-R", "rd-atomic"),
    ("-S", "sock-buf-size"),
    ("-T", "timeout"),
    ("-W", "wait-server"),
    ("-a", "cpu-affinity"),
    ("-p", "ip-port"),
    ("-r", "static-rate"),
    ("-u", "unify-units"),
];

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

/// Returns `true` if the values of a long option may be for one end. Such an option is a list of
/// [`PerEnd`](super::per_end::PerEnd), which has no delimiter.
pub(super) fn is_per_end(long: &str) -> bool {
    let arg = Options::all().find(|arg| arg.get_long() == Some(long));
    arg.is_some_and(|arg| {
        matches!(arg.get_action(), ArgAction::Append)
            && arg.get_value_delimiter().is_none()
            && long != "loop"
    })
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
        is_per_end(option).then(|| Cow::Owned(with_end.trim_end_matches('=').to_owned()))
    };
    match both {
        OptionName::Value(target) => add(&target).map(OptionName::Value),
        OptionName::Flag(target) => add(&target).map(OptionName::Flag),
        _ => None,
    }
}

fn lookup_for_both(name: &str) -> OptionName {
    if let Some(to) = find(VALUES, name) {
        return OptionName::Value(to.into());
    }
    if let Some(to) = find(FLAGS, name) {
        return OptionName::Flag(to.into());
    }
    if IGNORED.contains(&name) {
        return OptionName::Ignored;
    }
    if let Some(long) = find(FORMER, name) {
        return OptionName::Former(long);
    }
    if let Some((reason, help)) = find(UNSUPPORTED, name) {
        return OptionName::Unsupported { reason, help };
    }
    let arg = name
        .strip_prefix("--")
        .and_then(|n| Options::all().find(|a| a.get_long() == Some(n)));
    match arg {
        Some(arg) => {
            let id = Cow::Owned(arg.get_long().unwrap_or_default().to_owned());
            let is_optional = arg.get_num_args().is_some_and(|n| n.min_values() == 0);
            match arg.get_action().takes_values() {
                true if is_optional => OptionName::OptionalValue(id),
                true => OptionName::Value(id),
                false => OptionName::Flag(id),
            }
        }
        None => OptionName::Unknown,
    }
}

fn find<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table
        .iter()
        .find(|entry| entry.0 == name)
        .map(|entry| entry.1)
}

/// Returns the text of `--help qperf`: the names of qperf, each with its long option.
pub(crate) fn table() -> String {
    let lines: Vec<String> = VALUES
        .iter()
        .chain(FLAGS)
        .map(|(qperf, long)| format!("    {qperf:<24}--{long}\n"))
        .collect();
    let ends = "    -un, --unify-nodes      accepted without effect\n    -lX, --loc-X           --X local=… for each of these names with a value for one end\n    -rX, --rem-X           --X remote=…\n";
    lines.concat() + ends
}

/// Returns the first short name that qperf has for a long option.
pub(crate) fn short(long: &str) -> Option<&'static str> {
    VALUES
        .iter()
        .chain(FLAGS)
        .find(|(name, to)| *to == long && !name.starts_with("--"))
        .map(|(name, _)| *name)
}

/// Names that other programs have for an option, and the option.
const SYNONYMS: &[(&str, &str)] = &[
    ("device", "--id"),
    ("host-file", HOSTS_FILE),
    ("hostfile", HOSTS_FILE),
    ("hosts-file", HOSTS_FILE),
    ("iterations", "--messages"),
    ("message-size", "--msg-size"),
];
const HOSTS_FILE: &str = "--hosts-file of `rperf mesh` or `rperf monitor`";

/// Returns the long option that another program has under this name, or that is most similar to a
/// misspelled one, if any is similar enough.
pub(crate) fn suggest(name: &str) -> Option<String> {
    let name = name.strip_prefix("--")?.replace('_', "-");
    if let Some(option) = find(SYNONYMS, &name) {
        return Some(option.to_owned());
    }
    let known = similar(&name, Options::all().filter_map(clap::Arg::get_long))?;
    Some(format!("--{known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_an_existing_option() {
        let known: Vec<_> = Options::all().filter_map(clap::Arg::get_long).collect();
        for (name, to) in VALUES.iter().chain(FLAGS).chain(FORMER) {
            let to = to.split('=').next().unwrap();
            assert!(known.contains(&to) || to == "host", "{name} → {to}");
        }
    }

    #[test]
    fn no_name_is_listed_twice() {
        let mut all: Vec<_> = VALUES
            .iter()
            .chain(FLAGS)
            .map(|s| s.0)
            .chain(UNSUPPORTED.iter().map(|s| s.0))
            .chain(FORMER.iter().map(|s| s.0))
            .collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
