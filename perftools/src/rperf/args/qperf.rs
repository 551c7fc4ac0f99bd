//! qperf's spellings, and which long option each stands for.

use std::borrow::Cow;

use clap::CommandFactory;

use super::options::Options;

/// What an option's spelling stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// A long option (no dashes) that takes the next word.
    Value(Cow<'static, str>),
    /// A long option, with its value if it has one, that stands alone.
    Flag(Cow<'static, str>),
    /// An option of qperf that means nothing here, and why.
    Refused(&'static str),
    /// Neither ours nor qperf's.
    Unknown,
}

/// Spellings that take a value: qperf's, its old ones, and where its long names differ from ours;
/// perftest's of multicast.
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

/// Spellings that stand alone.
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

/// qperf's options that mean nothing here, each with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("-ap", NO_SECOND_PATH),
    ("-lap", NO_SECOND_PATH),
    ("-rap", NO_SECOND_PATH),
    ("--alt-port", NO_SECOND_PATH),
    ("--loc-alt-port", NO_SECOND_PATH),
    ("--rem-alt-port", NO_SECOND_PATH),
    ("-D", NO_DEBUG),
    ("--debug", NO_DEBUG),
];

const NO_SECOND_PATH: &str = "a second path that connections migrate to is InfiniBand's alone, and no figure shows it; name the port to measure by --id (-i) DEVICE:PORT";
const NO_DEBUG: &str = "what qperf says of its own working does not exist here; -v says how a test ran, and a server with -v what it serves";

/// Looks a spelling up: qperf's tables first, then the long options themselves. Underscores in long
/// names are dashes.
pub fn spelling(name: &str) -> Spelling {
    let long = name
        .strip_prefix("--")
        .map(|n| format!("--{}", n.replace('_', "-")));
    let name = long.as_deref().unwrap_or(name);
    let find = |table: &'static [(&str, &'static str)]| {
        table.iter().find(|(n, _)| *n == name).map(|(_, to)| *to)
    };
    if let Some(to) = find(VALUES) {
        return Spelling::Value(to.into());
    }
    if let Some(to) = find(FLAGS) {
        return Spelling::Flag(to.into());
    }
    if let Some(reason) = find(REFUSED) {
        return Spelling::Refused(reason);
    }
    let command = Options::command();
    let arg = name
        .strip_prefix("--")
        .and_then(|n| command.get_arguments().find(|a| a.get_long() == Some(n)));
    match arg {
        Some(arg) => {
            let id = Cow::Owned(arg.get_long().unwrap_or_default().to_owned());
            if arg.get_action().takes_values() {
                Spelling::Value(id)
            } else {
                Spelling::Flag(id)
            }
        }
        None => Spelling::Unknown,
    }
}

/// The spellings, for `--help qperf`.
pub fn table() -> String {
    let lines: Vec<String> = VALUES
        .iter()
        .chain(FLAGS)
        .map(|(qperf, long)| format!("    {qperf:<24}--{long}\n"))
        .collect();
    lines.concat()
}

/// qperf's first spelling of a long option.
pub fn short(long: &str) -> Option<&'static str> {
    VALUES
        .iter()
        .chain(FLAGS)
        .find(|(name, to)| *to == long && !name.starts_with("--"))
        .map(|(name, _)| *name)
}

/// The long option that a loop goes over, by its own name or qperf's; only those that take a
/// number.
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
        .find_map(|name| match spelling(name) {
            Spelling::Value(long) if NUMBERS.contains(&&*long) => Some(long.into_owned()),
            _ => None,
        })
}

/// The long option nearest to a misspelt one, if it is near.
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
    fn every_spelling_leads_to_an_option_that_exists() {
        let command = Options::command();
        let known: Vec<_> = command
            .get_arguments()
            .filter_map(clap::Arg::get_long)
            .collect();
        for (spelling, to) in VALUES.iter().chain(FLAGS) {
            let to = to.split('=').next().unwrap();
            assert!(known.contains(&to) || to == "host", "{spelling} → {to}");
        }
    }

    #[test]
    fn no_spelling_stands_twice() {
        let mut all: Vec<_> = VALUES
            .iter()
            .chain(FLAGS)
            .map(|s| s.0)
            .chain(REFUSED.iter().map(|s| s.0))
            .collect();
        all.sort_unstable();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
