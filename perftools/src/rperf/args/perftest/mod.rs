//! Translation of the command lines of perftest (`ib_send_bw` and the like): the hints for its
//! programs and options, and `--help perftest`.

mod options;

use std::fmt::Write;

use base::error::{Error, Result};
use base::shell;

pub(super) use options::option_hint;

use options::Meaning::{self, Omitted, Value, Words};
use options::{NOT_NEEDED, OPTIONS, Row, find};

/// The verb of a program of perftest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Send,
    Write,
    Read,
    Atomic,
}

/// The programs of perftest: name, verb, and whether it measures latency.
const PROGRAMS: &[(&str, Verb, bool)] = &[
    ("ib_send_bw", Verb::Send, false),
    ("ib_send_lat", Verb::Send, true),
    ("ib_write_bw", Verb::Write, false),
    ("ib_write_lat", Verb::Write, true),
    ("ib_read_bw", Verb::Read, false),
    ("ib_read_lat", Verb::Read, true),
    ("ib_atomic_bw", Verb::Atomic, false),
    ("ib_atomic_lat", Verb::Atomic, true),
];

/// Returns the text of `--help perftest`.
pub(super) fn help() -> String {
    let mut text = String::from(
        "rperf HOST TEST… replaces each program of perftest. The server is `rperf` without\narguments, for all tests and any number of clients. `rperf ib_send_bw …` prints the\nequivalent line of any command line of perftest.\n\nPrograms:\n",
    );
    for (program, verb, latency) in PROGRAMS {
        let test = Selection::new(*verb, *latency).test();
        // Writing to a string never fails.
        let _ = writeln!(text, "    {program:<24}{test}");
    }
    text += "\nOptions:\n";
    for row in OPTIONS {
        let _ = writeln!(text, "    {:<24}{}", row.names(), row.equivalent());
    }
    text + "\nDifferences: a test runs for 2 s instead of a number of iterations (-n). rperf polls for\na while and then sleeps; --wait poll polls without end, like perftest. Bandwidth is in\ndecimal units (MB/sec), with --bits in Gb/sec.\n"
}

/// Properties that select the test.
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
struct Selection<'a> {
    verb: Verb,
    latency: bool,
    service: &'a str,
    bidirectional: bool,
    compare_swap: bool,
    immediate: bool,
}

impl Selection<'_> {
    fn new(verb: Verb, latency: bool) -> Self {
        Self {
            verb,
            latency,
            service: "rc",
            bidirectional: false,
            compare_swap: false,
            immediate: false,
        }
    }

    /// Returns the name of the test.
    fn test(&self) -> String {
        let service = self.service;
        let pattern = match (self.latency, self.bidirectional) {
            (true, _) => "lat",
            (false, true) => "bi_bw",
            (false, false) => "bw",
        };
        match self.verb {
            Verb::Send => format!("{service}_{pattern}"),
            Verb::Write if self.latency && !self.immediate => {
                format!("{service}_rdma_write_poll_lat")
            }
            Verb::Write => format!("{service}_rdma_write_{pattern}"),
            Verb::Read => format!("{service}_rdma_read_{pattern}"),
            Verb::Atomic => {
                let operation = if self.compare_swap {
                    "compare_swap"
                } else {
                    "fetch_add"
                };
                let pattern = if self.latency { "lat" } else { "mr" };
                format!("{service}_{operation}_{pattern}")
            }
        }
    }
}

/// Rejects a command line of perftest, with the equivalent line as the remedy.
///
/// # Errors
/// A usage error if a word of the command line is a program of perftest.
pub(super) fn reject(args: &[String]) -> Result<()> {
    let program = args.iter().find_map(|word| {
        let name = word.rsplit('/').next().unwrap_or(word);
        PROGRAMS.iter().find(|(program, ..)| *program == name)
    });
    let Some((name, verb, latency)) = program else {
        return Ok(());
    };
    let others = args.iter().filter(|word| !word.ends_with(name));
    let error = Error::usage(format!(
        "{name} is a program of perftest, not a test of rperf"
    ));
    Err(match translate(*verb, *latency, others) {
        Ok(Translation { line, omitted }) if omitted.is_empty() => {
            error.with_help(format!("run `{line}`"))
        }
        Ok(Translation { line, omitted }) => error.with_help(format!(
            "run `{line}`; without an equivalent: {}",
            omitted.join(", ")
        )),
        Err(unknown) => error.with_help(format!(
            "perftest has no option named `{unknown}`; `rperf --help perftest` lists the equivalents of its options"
        )),
    })
}

/// The equivalent of a command line of perftest.
struct Translation {
    line: String,
    /// Options without an equivalent, each with the reason.
    omitted: Vec<String>,
}

/// Translates the words after the name of the program.
///
/// # Errors
/// Returns the name of an option that perftest does not have.
fn translate<'a>(
    verb: Verb,
    latency: bool,
    words: impl Iterator<Item = &'a String>,
) -> std::result::Result<Translation, String> {
    let mut selection = Selection::new(verb, latency);
    let (mut host, mut device, mut port) = (None, None, None);
    let (mut options, mut omitted) = (Vec::new(), Vec::new());
    let (mut limit, mut rate, mut unit, mut gigabits) = (None, None, "g".to_owned(), false);
    let mut words = words.map(String::as_str);
    while let Some(word) = words.next() {
        if !word.starts_with('-') {
            host = Some(word);
            continue;
        }
        for (row, value) in rows(word, &mut words)? {
            match (row.meaning, value) {
                (Value(option), Some(value)) => options.extend([format!("--{option}"), value]),
                (Words(words), _) => options.extend(words.split(' ').map(str::to_owned)),
                (Meaning::Device, Some(value)) => device = Some(value),
                (Meaning::DevicePort, Some(value)) => port = Some(value),
                (Meaning::Gpu, Some(number)) => {
                    options.extend(["--gpu".to_owned(), format!("cuda:{number}")]);
                }
                (Meaning::Connection, Some(value)) => {
                    selection.service = match value.to_lowercase().as_str() {
                        "uc" => "uc",
                        "ud" => "ud",
                        "xrc" => "xrc",
                        "rc" => "rc",
                        other => {
                            omitted.push(format!("-c {other} (rperf has no such service)"));
                            "rc"
                        }
                    };
                }
                (Meaning::Bidirectional, _) => selection.bidirectional = true,
                (Meaning::AtomicType, Some(value)) => {
                    selection.compare_swap = value.starts_with("CMP");
                }
                (Meaning::WriteWithImmediate, _) => selection.immediate = true,
                (Meaning::LimitBandwidth, value) => limit = value,
                (Meaning::Gigabits, _) => gigabits = true,
                (Meaning::RateLimit, value) => rate = value,
                (Meaning::RateUnit, Some(value)) => unit = value,
                (Omitted(reason), _) if row.meaning != NOT_NEEDED => {
                    omitted.push(format!("{} ({reason})", row.names().trim()));
                }
                _ => {}
            }
        }
    }
    if verb == Verb::Write && !latency && !selection.immediate {
        options.extend(["--immediate", "off"].map(str::to_owned));
    }
    let device = match (device, port) {
        (Some(device), Some(port)) => Some(format!("{device}:{port}")),
        (device, None) => device,
        (None, Some(port)) => {
            omitted.push(format!(
                "-i {port} (name the device too: --id DEVICE:{port})"
            ));
            None
        }
    };
    options.extend(
        device
            .into_iter()
            .flat_map(|device| ["--id".to_owned(), device]),
    );
    if let Some(limit) = limit {
        let unit = if gigabits { "Gb/s" } else { "MiB/s" };
        options.extend(["--min-bw".to_owned(), format!("{limit}{unit}")]);
    }
    match (rate, unit.as_str()) {
        (Some(_), "p") => omitted.push("--rate_units p (use a rate in Gb/s)".to_owned()),
        (Some(rate), unit) => {
            let unit = if unit == "M" { "MiB/s" } else { "Gb/s" };
            options.extend(["--rate-limit".to_owned(), format!("{rate}{unit}")]);
        }
        (None, _) => {}
    }
    if gigabits {
        options.push("--bits".to_owned());
    }
    let line = match host {
        Some(host) => {
            let test = selection.test();
            let words = ["rperf", host].into_iter();
            shell::join(
                words
                    .chain(options.iter().map(String::as_str))
                    .chain([test.as_str()]),
            )
        }
        // Without a host it is the server, to which the client sends all settings.
        None => "rperf".to_owned(),
    };
    Ok(Translation { line, omitted })
}

/// Returns the options in one word, such as `-aF`, `-s64K` or `--size=64K`, with their values.
fn rows<'a>(
    word: &str,
    rest: &mut impl Iterator<Item = &'a str>,
) -> std::result::Result<Vec<(&'static Row, Option<String>)>, String> {
    if word.starts_with("--") {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let row = find(name).ok_or_else(|| name.to_owned())?;
        let value = row.takes_value.then(|| inline.or_else(|| rest.next()));
        return Ok(vec![(row, value.flatten().map(str::to_owned))]);
    }
    let mut found = Vec::new();
    let mut letters = word.chars().skip(1);
    while let Some(letter) = letters.next() {
        let name = format!("-{letter}");
        let row = find(&name).ok_or(name)?;
        if row.takes_value {
            let attached: String = letters.collect();
            let value = Some(attached).filter(|value| !value.is_empty());
            found.push((row, value.or_else(|| rest.next().map(str::to_owned))));
            break;
        }
        found.push((row, None));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::args::{Invocation, parse};

    /// Returns the remedy for a command line.
    fn remedy(line: &str) -> String {
        let error = parse(line.split_whitespace()).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.help().unwrap_or_default().to_owned()
    }

    #[test]
    fn command_lines_of_perftest_get_the_equivalent_line() {
        for (line, expected) in [
            (
                "ib_send_bw -s 64K -q 4 -x 1 HOST",
                "rperf HOST --msg-size 64K --qps 4 --gid-index 1 rc_bw",
            ),
            (
                "ib_write_bw -d mlx5_0 -i 1 -aF --report_gbits -w 380 10.0.0.2",
                "rperf 10.0.0.2 --sizes 2..8M --immediate off --id mlx5_0:1 --min-bw 380Gb/s --bits rc_rdma_write_bw",
            ),
            (
                "ib_send_bw -b -c UC -D 10 -t512 HOST",
                "rperf HOST --time 10 --depth 512 uc_bi_bw",
            ),
            ("ib_write_lat HOST", "rperf HOST rc_rdma_write_poll_lat"),
            (
                "ib_atomic_bw -A CMP_AND_SWAP --rate_limit=5 HOST",
                "rperf HOST --rate-limit 5Gb/s rc_compare_swap_mr",
            ),
            (
                "ib_write_bw --use_cuda=1 --use_cuda_dmabuf HOST",
                "rperf HOST --gpu cuda:1 --immediate off rc_rdma_write_bw",
            ),
            (
                "/usr/bin/ib_read_lat -R -e HOST",
                "rperf HOST --use-cm on --wait events rc_rdma_read_lat",
            ),
        ] {
            let help = remedy(line);
            assert_eq!(help, format!("run `{expected}`"), "{line}");
            let words = expected.split_whitespace().skip(1);
            assert!(
                matches!(parse(words), Ok(Invocation::Client { .. })),
                "{expected}"
            );
        }
        assert_eq!(remedy("ib_send_bw -d mlx5_0"), "run `rperf`");
        assert_eq!(
            remedy("ib_send_bw -u 14 --dlid 3 HOST"),
            "run `rperf HOST --qp-timeout 14 rc_bw`; without an equivalent: --dlid (not supported)"
        );
        assert!(remedy("ib_send_bw -k HOST").contains("no option named `-k`"));
    }

    #[test]
    fn options_of_perftest_get_a_hint() {
        for (line, expected) in [
            (
                "-s 64K HOST rc_bw",
                "perftest's -s, --size is --msg-size in rperf",
            ),
            ("HOST rc_bw -q 4", "perftest's -q, --qp is --qps in rperf"),
            (
                "HOST rc_bw --report_gbits",
                "perftest's --report_gbits is --bits in rperf",
            ),
            ("HOST rc_bw -b", "such as rc_bi_bw"),
            ("HOST rc_bw -F", "has no equivalent: not needed"),
            ("HOST rc_bw -D 10", "--time"),
        ] {
            let help = remedy(line);
            assert!(help.contains(expected), "{line}: {help}");
        }
    }

    #[test]
    fn every_equivalent_is_an_option_of_rperf() {
        for row in OPTIONS {
            let words = match row.meaning {
                Value("bind") => "--bind ::1".to_owned(),
                Value("burst") => "--burst 1 --rate-limit 1Gb/s".to_owned(),
                Value(option) => format!("--{option} 1"),
                Words(words) => words.to_owned(),
                _ => continue,
            };
            let is_valid = |test: &str| {
                let line = format!("{words} HOST {test}");
                parse(line.split_whitespace()).is_ok()
            };
            let tests = ["rc_bw", "ud_bw", "rc_lat", "rc_rdma_read_bw"];
            assert!(tests.into_iter().any(is_valid), "{words}");
        }
        for (program, verb, latency) in PROGRAMS {
            let test = Selection::new(*verb, *latency).test();
            assert!(
                measure::spec::test::Test::from_name(&test).is_ok(),
                "{program}: {test}"
            );
        }
    }

    #[test]
    fn the_help_lists_programs_and_options() {
        let text = help();
        for line in [
            "    ib_send_bw              rc_bw\n",
            "    -s, --size              --msg-size\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_words_cause_no_panic(words in proptest::collection::vec("-{0,2}[a-zA-Z=0-9_]{0,6}", 0..6)) {
            let words = words.into_iter().chain(["ib_send_bw".to_owned()]).collect::<Vec<_>>();
            proptest::prop_assert!(reject(&words).is_err());
        }
    }
}
