//! Hints for options that other tools have under this name: former versions of qperf, perftest and
//! iperf3.

use base::error::Error;

use super::qperf::{self, OptionName};
use super::{perftest, scope};

/// Options of iperf3 and their equivalents.
const IPERF3: &[(&str, &str)] = &[
    ("-s", "-s is `rperf` without arguments"),
    ("-c", "-c HOST is `rperf HOST tcp_bw`"),
    ("-p", "-p PORT is --listen-port PORT on both hosts"),
    ("-f", "-f UNIT is --bits for bits, or omitted for bytes"),
    ("-i", "-i SECONDS is --interval SECONDS"),
    ("-u", "-u is the test udp_bw"),
    ("-b", "-b RATE is --rate-limit RATE"),
    ("-P", "-P N is --parallel N"),
    ("-R", "-R is --flip on"),
    ("-l", "-l SIZE is --msg-size SIZE"),
    ("-w", "-w SIZE is --sock-buf-size SIZE"),
    ("-B", "-B ADDRESS is --bind ADDRESS"),
    ("-J", "-J is --json"),
    ("-4", "-4 has no equivalent: specify an IPv4 address"),
    ("-6", "-6 has no equivalent: specify an IPv6 address"),
    ("--client", "--client HOST is `rperf HOST tcp_bw`"),
    ("--server", "--server is `rperf` without arguments"),
    ("--reverse", "--reverse is --flip on"),
    ("--bitrate", "--bitrate RATE is --rate-limit RATE"),
    ("--udp", "--udp is the test udp_bw"),
    ("--length", "--length SIZE is --msg-size SIZE"),
    ("--window", "--window SIZE is --sock-buf-size SIZE"),
    (
        "--format",
        "--format UNIT is --bits for bits, or omitted for bytes",
    ),
    ("--bandwidth", "--bandwidth RATE is --rate-limit RATE"),
    ("--sctp", "--sctp is the test sctp_bw"),
    (
        "--connect-timeout",
        "--connect-timeout MS is --wait-server MSms",
    ),
];

/// Options of iperf3 without an equivalent.
const IPERF3_ONLY: &[&str] = &[
    "-1",
    "-C",
    "-M",
    "-O",
    "-S",
    "-Z",
    "-k",
    "-n",
    "--blockcount",
    "--bytes",
    "--congestion",
    "--cport",
    "--dscp",
    "--file",
    "--get-server-output",
    "--logfile",
    "--mptcp",
    "--no-delay",
    "--nstreams",
    "--omit",
    "--one-off",
    "--set-mss",
    "--title",
    "--tos",
    "--zerocopy",
];

/// Returns the meanings of an option in other tools.
pub(super) fn hint(name: &str) -> Option<String> {
    let former = match qperf::lookup(name) {
        OptionName::Former(long) => {
            let option = scope::display(long);
            Some(format!("the former {name} of qperf is {option}"))
        }
        _ => None,
    };
    let iperf3 = IPERF3.iter().find(|row| row.0 == name);
    let only = IPERF3_ONLY.contains(&name);
    let hints: Vec<String> = former
        .into_iter()
        .chain(perftest::option_hint(name))
        .chain(iperf3.map(|row| format!("iperf3's {}", row.1)))
        .chain(only.then(|| format!("iperf3's {name} has no equivalent")))
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

#[cfg(test)]
mod tests {
    use super::*;
    use measure::spec::test::Test;

    #[test]
    fn equivalents_of_iperf3_act_on_tests_over_sockets() {
        let tests = ["tcp_bw", "udp_bw"].map(|name| Test::from_name(name).unwrap());
        for (name, hint) in IPERF3 {
            let (_, equivalent) = hint.split_once(" is ").unwrap_or_default();
            let mut options = equivalent.split(' ').filter(|word| word.starts_with("--"));
            assert!(
                options.all(|option| tests.iter().all(|test| scope::acts_on(option, *test))),
                "{name}: {hint}"
            );
        }
    }
}
