//! Option names of qperf and the long option that each one stands for.

use std::borrow::Cow;

use clap::CommandFactory;

use super::command_line::Options;

/// Meaning of an option name on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OptionName {
    /// A long option (without dashes) that takes a value.
    Value(Cow<'static, str>),
    /// A long option that takes no value, or that includes its value (`flip=on`).
    Flag(Cow<'static, str>),
    /// An option of qperf that rperf does not support.
    Unsupported {
        /// The reason why it is not supported.
        reason: &'static str,
        /// An alternative.
        help: &'static str,
    },
    /// Neither an option of rperf nor of qperf.
    Unknown,
}

/// Names of options that take a value: the names of qperf, its obsolete names and its long names
/// that differ from those of rperf; and the names of perftest for multicast.
const VALUES: &[(&str, &str)] = &[
    ("-i", "id"),
    ("-li", "local-id"),
    ("-ri", "remote-id"),
    ("--loc-id", "local-id"),
    ("--rem-id", "remote-id"),
    ("-m", "msg-size"),
    ("-n", "messages"),
    ("--no-msgs", "messages"),
    ("-t", "time"),
    ("-mt", "mtu"),
    ("-M", "mtu"),
    ("--mtu-size", "mtu"),
    ("-to", "timeout"),
    ("-T", "timeout"),
    ("-lto", "local-timeout"),
    ("-lT", "local-timeout"),
    ("--loc-timeout", "local-timeout"),
    ("-rto", "remote-timeout"),
    ("-rT", "remote-timeout"),
    ("--rem-timeout", "remote-timeout"),
    ("-cm", "use-cm"),
    ("-cp", "wait"),
    ("-P", "wait"),
    ("--cq-poll", "wait"),
    ("--poll", "wait"),
    ("-lcp", "local-wait"),
    ("-lP", "local-wait"),
    ("--loc-cq-poll", "local-wait"),
    ("--loc-poll", "local-wait"),
    ("-rcp", "remote-wait"),
    ("-rP", "remote-wait"),
    ("--rem-cq-poll", "remote-wait"),
    ("--rem-poll", "remote-wait"),
    ("-e", "precision"),
    ("-lp", "listen-port"),
    ("-ws", "wait-server"),
    ("-W", "wait-server"),
    ("--wait", "wait"),
    ("-oo", "loop"),
    ("-sl", "service-level"),
    ("-nr", "rd-atomic"),
    ("-R", "rd-atomic"),
    ("-lnr", "local-rd-atomic"),
    ("-lR", "local-rd-atomic"),
    ("--loc-rd-atomic", "local-rd-atomic"),
    ("-rnr", "remote-rd-atomic"),
    ("-rR", "remote-rd-atomic"),
    ("--rem-rd-atomic", "remote-rd-atomic"),
    ("-lsl", "local-service-level"),
    ("--loc-service-level", "local-service-level"),
    ("-rsl", "remote-service-level"),
    ("--rem-service-level", "remote-service-level"),
    ("-sp", "src-path-bits"),
    ("-lsp", "local-src-path-bits"),
    ("--loc-src-path-bits", "local-src-path-bits"),
    ("-rsp", "remote-src-path-bits"),
    ("--rem-src-path-bits", "remote-src-path-bits"),
    ("-sr", "static-rate"),
    ("-r", "static-rate"),
    ("--rate", "static-rate"),
    ("-lsr", "local-static-rate"),
    ("-lr", "local-static-rate"),
    ("--loc-static-rate", "local-static-rate"),
    ("-rsr", "remote-static-rate"),
    ("-rr", "remote-static-rate"),
    ("--rem-static-rate", "remote-static-rate"),
    ("-ar", "access-received"),
    ("-Ar", "access-received"),
    ("--access-recv", "access-received"),
    ("-f", "flip"),
    ("-ca", "cpu-affinity"),
    ("-a", "cpu-affinity"),
    ("--affinity", "cpu-affinity"),
    ("-lca", "local-cpu-affinity"),
    ("-la", "local-cpu-affinity"),
    ("--loc-cpu-affinity", "local-cpu-affinity"),
    ("-rca", "remote-cpu-affinity"),
    ("-ra", "remote-cpu-affinity"),
    ("--rem-cpu-affinity", "remote-cpu-affinity"),
    ("-ip", "ip-port"),
    ("-p", "ip-port"),
    ("--port", "ip-port"),
    ("-sb", "sock-buf-size"),
    ("-S", "sock-buf-size"),
    ("-lsb", "local-sock-buf-size"),
    ("-lS", "local-sock-buf-size"),
    ("--loc-sock-buf-size", "local-sock-buf-size"),
    ("-rsb", "remote-sock-buf-size"),
    ("-rS", "remote-sock-buf-size"),
    ("--rem-sock-buf-size", "remote-sock-buf-size"),
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
    ("-lcp0", "local-wait=events"),
    ("-lcp1", "local-wait=poll"),
    ("-lcpo", "local-wait=poll"),
    ("-rcp0", "remote-wait=events"),
    ("-rcp1", "remote-wait=poll"),
    ("-rcpo", "remote-wait=poll"),
    ("-ub", "bits"),
    ("--use-bits-per-sec", "bits"),
    ("-uu", "unify-units"),
    ("-u", "unify-units"),
    ("-un", "unify-nodes"),
    ("-v", "verbose"),
    ("-vc", "verbose-conf"),
    ("-vs", "verbose-stat"),
    ("-vt", "verbose-time"),
    ("-vu", "verbose-used"),
    ("-vv", "verbose-more"),
    ("-vvc", "verbose-more-conf"),
    ("-vvs", "verbose-more-stat"),
    ("-vvt", "verbose-more-time"),
    ("-vvu", "verbose-more-used"),
    ("-vC", "verbose-more-conf"),
    ("-vS", "verbose-more-stat"),
    ("-vT", "verbose-more-time"),
    ("-vU", "verbose-more-used"),
];

/// Options of qperf that rperf does not support, each with the reason and an alternative.
const UNSUPPORTED: &[(&str, (&str, &str))] = &[
    ("-ap", NO_PATH_MIGRATION),
    ("-lap", NO_PATH_MIGRATION),
    ("-rap", NO_PATH_MIGRATION),
    ("--alt-port", NO_PATH_MIGRATION),
    ("--loc-alt-port", NO_PATH_MIGRATION),
    ("--rem-alt-port", NO_PATH_MIGRATION),
    ("-D", NO_DEBUG_OUTPUT),
    ("--debug", NO_DEBUG_OUTPUT),
];

const NO_PATH_MIGRATION: (&str, &str) = (
    "rperf does not support path migration",
    "select the port to measure with --id (-i) DEVICE:PORT",
);
const NO_DEBUG_OUTPUT: (&str, &str) = (
    "rperf has no debug output",
    "use -v, which prints how a test ran and lets a server log each test; perftest's -D, --duration is --time (-t)",
);

/// Looks up the name of an option, first among the names of qperf, then among the long options.
/// Underscores in long names count as dashes.
pub fn lookup(name: &str) -> OptionName {
    let long = name
        .strip_prefix("--")
        .map(|n| format!("--{}", n.replace('_', "-")));
    let name = long.as_deref().unwrap_or(name);
    if let Some(to) = find(VALUES, name) {
        return OptionName::Value(to.into());
    }
    if let Some(to) = find(FLAGS, name) {
        return OptionName::Flag(to.into());
    }
    if let Some((reason, help)) = find(UNSUPPORTED, name) {
        return OptionName::Unsupported { reason, help };
    }
    let command = Options::command();
    let arg = name
        .strip_prefix("--")
        .and_then(|n| command.get_arguments().find(|a| a.get_long() == Some(n)));
    match arg {
        Some(arg) => {
            let id = Cow::Owned(arg.get_long().unwrap_or_default().to_owned());
            if arg.get_action().takes_values() {
                OptionName::Value(id)
            } else {
                OptionName::Flag(id)
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
pub fn table() -> String {
    let lines: Vec<String> = VALUES
        .iter()
        .chain(FLAGS)
        .map(|(qperf, long)| format!("    {qperf:<24}--{long}\n"))
        .collect();
    lines.concat()
}

/// Returns the first short name that qperf has for a long option.
pub fn short(long: &str) -> Option<&'static str> {
    VALUES
        .iter()
        .chain(FLAGS)
        .find(|(name, to)| *to == long && !name.starts_with("--"))
        .map(|(name, _)| *name)
}

/// Returns the long option that `--loop` varies, from any of its names; `None` if its value is not
/// a number.
pub fn loop_variable(name: &str) -> Option<String> {
    const NUMBERS: &[&str] = &[
        "msg-size",
        "messages",
        "time",
        "depth",
        "qps",
        "threads",
        "mtu",
        "timeout",
        "local-timeout",
        "remote-timeout",
        "warm-up",
        "rate-limit",
        "post-list",
        "inline",
        "cq-moderation",
        "rd-atomic",
        "local-rd-atomic",
        "remote-rd-atomic",
        "recv-list",
        "src-path-bits",
        "local-service-level",
        "remote-service-level",
        "gid-index",
        "pkey-index",
        "service-level",
        "traffic-class",
        "cpu-affinity",
        "local-cpu-affinity",
        "remote-cpu-affinity",
    ];
    [format!("--{name}"), format!("-{name}")]
        .iter()
        .find_map(|name| match lookup(name) {
            OptionName::Value(long) if NUMBERS.contains(&&*long) => Some(long.into_owned()),
            _ => None,
        })
}

/// Returns the long option that is most similar to a misspelled one, if any is similar enough.
pub fn suggest(name: &str) -> Option<String> {
    let name = name.strip_prefix("--")?.replace('_', "-");
    Options::command()
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .map(|long| (strsim::damerau_levenshtein(long, &name), long))
        .filter(|(distance, long)| *distance <= long.len() / 3)
        .min()
        .map(|near| format!("--{}", near.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_stands_for_an_existing_option() {
        let command = Options::command();
        let known: Vec<_> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        for (name, to) in VALUES.iter().chain(FLAGS) {
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
            .collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
