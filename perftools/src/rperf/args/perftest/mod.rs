//! Translation of the command lines of perftest (`ib_send_bw` and the like): the hints for its
//! programs and options, and `--help perftest`.

mod options;
#[cfg(test)]
mod tests;

use std::fmt::Write;
use std::iter;

use base::error::{Error, Result};
use base::shell;

pub(super) use options::{collision, option_hint};

use measure::spec::test::Test;
use options::Meaning::{self, Omitted, Value, Words};

use super::scope;
use options::{NOT_NEEDED, OptionRow, find};

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

/// The programs of perftest without an equivalent.
const RAW_PROGRAMS: &[&str] = &[
    "raw_ethernet_bw",
    "raw_ethernet_lat",
    "raw_ethernet_burst_lat",
    "raw_ethernet_fs_rate",
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
    for row in options::all() {
        let _ = writeln!(text, "    {:<24}{}", row.names(), row.equivalent());
    }
    text + "\nDifferences: a test runs for 2 s instead of a number of iterations (-n). rperf polls for\na while and then sleeps; --wait poll polls without end, like perftest. Bandwidth is in\ndecimal units (MB/sec), with --bits in Gb/sec.\n"
}

/// Checks whether `rperf` accepts a command line.
pub(super) type Check = fn(&[&str]) -> Result<()>;

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
            // Writes over SRD may place the last byte first, so the peer cannot poll for it.
            Verb::Write if self.latency && !self.immediate && service != "srd" => {
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
                let pattern = if pattern == "bw" { "mr" } else { pattern };
                format!("{service}_{operation}_{pattern}")
            }
        }
    }
}

/// Rejects a command line of perftest, with the equivalent line as the remedy, which `check`
/// accepts.
pub(super) fn reject(args: &[String], check: Check) -> Result<()> {
    let name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    if let Some(name) = args
        .iter()
        .map(name)
        .find(|n| RAW_PROGRAMS.contains(&n.as_str()))
    {
        return Err(Error::usage(format!(
            "{name} is a program of perftest, and rperf does not measure raw Ethernet"
        ))
        .with_help("for packets of UDP, run udp_bw or udp_lat"));
    }
    let program = args
        .iter()
        .find_map(|word| PROGRAMS.iter().find(|(program, ..)| *program == name(word)));
    let Some((name, verb, latency)) = program else {
        return Ok(());
    };
    let others = args.iter().filter(|word| !word.ends_with(name));
    let error = Error::usage(format!(
        "{name} is a program of perftest, not a test of rperf"
    ));
    Err(match translate(*verb, *latency, others, check) {
        Ok(Translation { line, omitted }) if omitted.is_empty() => {
            error.with_help(format!("run `{line}`"))
        }
        Ok(Translation { line, omitted }) => error.with_help(format!(
            "run `{line}`; without an equivalent: {}",
            omitted.join(", ")
        )),
        Err(refusal) => error.with_help(refusal),
    })
}

/// The equivalent of a command line of perftest.
struct Translation {
    line: String,
    /// Options without an equivalent, each with the reason.
    omitted: Vec<String>,
}

/// A command line of perftest.
struct CommandLine<'a> {
    selection: Selection<'a>,
    host: Option<&'a str>,
    device: Option<String>,
    port: Option<String>,
    all_sizes: bool,
    limit: Option<String>,
    rate: Option<String>,
    rate_unit: String,
    gigabits: bool,
    /// Options of rperf, each with the name of the option that it replaces.
    options: Vec<(String, Vec<String>)>,
    omitted: Vec<String>,
    check: Check,
}

/// Translates the words after the name of the program.
///
/// # Errors
/// Returns the reason why there is no equivalent line.
fn translate<'a>(
    verb: Verb,
    latency: bool,
    words: impl Iterator<Item = &'a String>,
    check: Check,
) -> std::result::Result<Translation, String> {
    let mut line = CommandLine {
        selection: Selection::new(verb, latency),
        host: None,
        device: None,
        port: None,
        all_sizes: false,
        limit: None,
        rate: None,
        rate_unit: "g".to_owned(),
        gigabits: false,
        options: Vec::new(),
        omitted: Vec::new(),
        check,
    };
    let mut words = words.map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--" {
            continue;
        }
        if word.starts_with('-') {
            for (row, value) in rows(word, &mut words)? {
                line.apply(row, value)?;
            }
        } else if let Some(host) = line.host.replace(word) {
            return Err(format!("perftest takes one host, not {host} and {word}"));
        }
    }
    line.translation()
}

impl CommandLine<'_> {
    /// Applies an option of perftest.
    fn apply(&mut self, row: &OptionRow, value: Option<String>) -> std::result::Result<(), String> {
        let name = row.names().trim().to_owned();
        match (row.meaning, value) {
            (Value(option), Some(value)) => {
                self.options
                    .push((name, vec![format!("--{option}"), value]));
            }
            (Words(words), _) => {
                let words = words.split(' ').map(str::to_owned).collect();
                self.options.push((name, words));
            }
            (Meaning::Gpu, Some(number)) => {
                let words = vec!["--gpu".to_owned(), format!("cuda:{number}")];
                self.options.push((name, words));
            }
            (Meaning::Connection, Some(value)) => {
                let services = ["rc", "uc", "ud", "xrc", "srd", "dc"];
                let known = services
                    .into_iter()
                    .find(|s| s.eq_ignore_ascii_case(&value));
                self.selection.service = known.ok_or_else(|| {
                    format!("there is no equivalent: rperf does not measure {value} (-c)")
                })?;
            }
            (Meaning::AtomicType, Some(value)) => {
                self.selection.compare_swap = match value.as_str() {
                    "CMP_AND_SWAP" => true,
                    "FETCH_AND_ADD" => false,
                    _ => {
                        let values = "FETCH_AND_ADD or CMP_AND_SWAP";
                        return Err(format!("{name} {value}: expected {values}"));
                    }
                };
            }
            (Meaning::Device, value) => self.device = value,
            (Meaning::DevicePort, value) => self.port = value,
            (Meaning::AllSizes, _) => self.all_sizes = true,
            (Meaning::Bidirectional, _) if self.selection.latency => {
                self.omitted
                    .push(format!("{name} (a latency test has both directions)"));
            }
            (Meaning::Bidirectional, _) => self.selection.bidirectional = true,
            (Meaning::Multicast, _) => {
                self.selection.service = "ud";
                self.add("--multicast", "1");
            }
            (Meaning::WriteWithImmediate, _) => self.selection.immediate = true,
            (Meaning::LimitBandwidth, value) => self.limit = value,
            (Meaning::Gigabits, _) => self.gigabits = true,
            (Meaning::RateLimit, value) => self.rate = value,
            (Meaning::RateUnit, Some(value)) => self.rate_unit = value,
            (Omitted(reason), _) if row.meaning != NOT_NEEDED => {
                self.omitted.push(format!("{name} ({reason})"));
            }
            _ => {}
        }
        Ok(())
    }

    fn add(&mut self, option: &str, value: &str) {
        let words = vec![option.to_owned(), value.to_owned()];
        self.options.push((option.to_owned(), words));
    }

    /// Returns the value of an option of rperf.
    fn value(&mut self, option: &str) -> Option<&mut String> {
        let mut values = self
            .options
            .iter_mut()
            .filter(|(_, words)| words[0] == option);
        values.next_back()?.1.get_mut(1)
    }

    /// Corrects the number of messages: perftest's is that of each queue pair, and its duration has
    /// precedence.
    fn correct_messages(&mut self) {
        if self.value("--time").is_some() {
            self.options.retain(|(_, words)| words[0] != "--messages");
        }
        let number = |text: &mut String| text.parse::<u64>().ok();
        let qps = self.value("--qps").and_then(number).unwrap_or(1);
        if let Some(messages) = self.value("--messages") {
            if let Some(total) = number(messages).and_then(|n| n.checked_mul(qps)) {
                *messages = total.to_string();
            }
        }
    }

    /// Adds the options that depend on several options of perftest.
    fn combine(&mut self) {
        self.correct_messages();
        let is_write = self.selection.verb == Verb::Write;
        let note = match (self.all_sizes, self.selection.service) {
            (true, service @ ("ud" | "srd"))
                if service == "ud" || self.selection.verb == Verb::Send =>
            {
                self.add("--sizes", "2..4K");
                Some("-a, --all (4K is the largest MTU: lower it to that of the port)".to_owned())
            }
            (true, _) if self.selection.verb != Verb::Atomic => {
                self.add("--sizes", "2..8M");
                None
            }
            _ => None,
        };
        self.omitted.extend(note);
        if is_write && !self.selection.latency && !self.selection.immediate {
            self.add("--immediate", "off");
        }
        match (self.device.take(), self.port.take()) {
            (Some(device), Some(port)) => self.add("--id", &format!("{device}:{port}")),
            (Some(device), None) => self.add("--id", &device),
            (None, Some(port)) => self.omitted.push(format!(
                "-i {port} (name the device too: --id DEVICE:{port})"
            )),
            (None, None) => {}
        }
        if let Some(limit) = self.limit.take() {
            let unit = if self.gigabits { "Gb/s" } else { "MiB/s" };
            self.add("--min-bw", &format!("{limit}{unit}"));
        }
        match (self.rate.take(), self.rate_unit.as_str()) {
            (Some(_), "p") => {
                let note = "--rate_units p (use a rate in Gb/s)";
                self.omitted.push(note.to_owned());
            }
            (Some(rate), "M") => self.add("--rate-limit", &format!("{rate}MiB/s")),
            (Some(rate), _) => self.add("--rate-limit", &format!("{rate}Gb/s")),
            (None, _) => {}
        }
        if self.gigabits {
            let bits = "--bits".to_owned();
            self.options.push((bits.clone(), vec![bits]));
        }
    }

    /// Returns the equivalent, without options that have no effect on the test.
    fn translation(mut self) -> std::result::Result<Translation, String> {
        let name = self.selection.test();
        let Ok(test) = Test::from_name(&name) else {
            return Err(format!(
                "there is no equivalent: rperf has no test {name}, only these: {}",
                similar_tests(&self.selection)
            ));
        };
        let Some(host) = self.host else {
            // Without a host it is the server, to which the client sends the settings of a test.
            self.options
                .retain(|(_, words)| scope::is_of_server(&words[0]));
            self.omitted.clear();
            let words = self.accepted(None);
            return Ok(self.finish(iter::once("rperf".to_owned()).chain(words)));
        };
        self.combine();
        let mut line = vec!["rperf".to_owned(), host.to_owned()];
        line.extend(self.accepted(Some(test)));
        line.push(test.name().to_owned());
        Ok(self.finish(line))
    }

    fn finish(self, line: impl IntoIterator<Item = String>) -> Translation {
        Translation {
            line: shell::join(line),
            omitted: self.omitted,
        }
    }

    /// Returns the words of the options that rperf accepts for a test, or for a server. The others
    /// are omitted, each with the reason.
    fn accepted(&mut self, test: Option<Test>) -> Vec<String> {
        let mut accepted: Vec<String> = Vec::new();
        let mut reasons = Vec::new();
        let mut options = std::mem::take(&mut self.options);
        // Twice, because an option may need one that follows it.
        for _ in 0..2 {
            reasons.clear();
            for (name, mut words) in std::mem::take(&mut options) {
                if words.iter().all(|word| word.starts_with("--")) {
                    words.retain(|word| !accepted.contains(word));
                }
                match self.refusal(accepted.iter().chain(&words), test) {
                    Some(reason) => {
                        reasons.push(format!("{name} ({reason})"));
                        options.push((name, words));
                    }
                    None => accepted.extend(words),
                }
            }
        }
        self.omitted.extend(reasons);
        accepted
    }

    /// Returns the reason why rperf refuses options of a test, or of a server.
    fn refusal<'b>(
        &self,
        options: impl Iterator<Item = &'b String> + Clone,
        test: Option<Test>,
    ) -> Option<String> {
        if let Some(test) = test.filter(|test| options.clone().any(|w| !scope::acts_on(w, *test))) {
            return Some(format!("no effect on {}", test.name()));
        }
        let rest = test.map(|test| ["HOST", test.name()]);
        let words = options
            .map(String::as_str)
            .chain(rest.into_iter().flatten());
        let error = (self.check)(&words.collect::<Vec<_>>()).err()?;
        Some(error.text().to_owned())
    }
}

/// Returns the tests of the same verb and service.
fn similar_tests(selection: &Selection<'_>) -> String {
    let one_way = Selection {
        bidirectional: false,
        ..*selection
    };
    let reliable = Selection {
        service: "rc",
        ..*selection
    };
    let names = [one_way.test(), reliable.test()];
    let exists = |name: &&String| Test::from_name(name).is_ok();
    let found: Vec<&str> = names.iter().filter(exists).map(String::as_str).collect();
    found.join(", ")
}

fn unknown(name: &str) -> String {
    format!(
        "the option {name} is not known here; `rperf --help perftest` lists the equivalents of the options of perftest"
    )
}

fn no_value(name: &str) -> String {
    format!("{name} needs a value")
}

/// Returns the options in one word, such as `-aF`, `-s64K` or `--size=64K`, with their values.
fn rows<'a>(
    word: &str,
    rest: &mut impl Iterator<Item = &'a str>,
) -> std::result::Result<Vec<(&'static OptionRow, Option<String>)>, String> {
    if word.starts_with("--") {
        let (name, inline) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        let row = find(name).ok_or_else(|| unknown(name))?;
        if !row.takes_value {
            return Ok(vec![(row, None)]);
        }
        let value = inline.or_else(|| rest.next());
        let value = value.ok_or_else(|| no_value(name))?.to_owned();
        return Ok(vec![(row, Some(value))]);
    }
    let mut found = Vec::new();
    let mut letters = word.chars().skip(1);
    while let Some(letter) = letters.next() {
        let name = format!("-{letter}");
        let row = find(&name).ok_or_else(|| unknown(&name))?;
        if row.takes_value {
            let attached: String = letters.collect();
            let value = Some(attached).filter(|value| !value.is_empty());
            let value = value.or_else(|| rest.next().map(str::to_owned));
            found.push((row, Some(value.ok_or_else(|| no_value(&name))?)));
            break;
        }
        found.push((row, None));
    }
    Ok(found)
}
