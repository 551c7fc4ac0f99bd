//! Sweeps: one test run with several values of an option, by `--sizes` or `--loop` (`-oo` in
//! qperf).

use base::error::{Error, Result};
use base::units::{Rate, Size, parse_time, show_time};
use measure::spec::Parameter;

use super::command_line::Options;
use super::option::{self, KnownOption};
use super::qperf::{self, OptionName};

/// Maximum number of runs that one command line may ask for.
pub(crate) const MAX_RUNS: usize = 10_000;

/// Step from one value of a loop to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Add(u64),
    Multiply(u64),
}

/// Returns the options to add for each run of a sweep: one empty list if `options` contain no
/// sweep.
pub(crate) fn runs(options: &Options) -> Result<Vec<Vec<String>>> {
    let mut runs = vec![Vec::new()];
    for text in &options.tuning.loops {
        runs = product(&runs, &loop_options(text)?)?;
    }
    if let Some(text) = &options.tuning.sizes {
        let sizes = sizes(text)?
            .into_iter()
            .map(|size| format!("--msg-size={size}"))
            .collect::<Vec<_>>();
        runs = product(&runs, &sizes)?;
    }
    Ok(runs)
}

fn product(runs: &[Vec<String>], values: &[String]) -> Result<Vec<Vec<String>>> {
    if runs.len() * values.len() > MAX_RUNS {
        return Err(Error::usage(format!(
            "sweep has {} runs of one test: the maximum is {MAX_RUNS}",
            runs.len() * values.len()
        )));
    }
    let with = |run: &Vec<String>, value: &String| run.iter().chain([value]).cloned().collect();
    Ok(runs
        .iter()
        .flat_map(|run| values.iter().map(move |value| with(run, value)))
        .collect())
}

/// Remedy for sizes that cannot be parsed.
const SIZES: &str = "specify --sizes 2..8M, which doubles the size, or a list such as 64,4K,1M";

/// Parses the value of `--sizes`: `2..8M` or `64,4K,1M`.
fn sizes(text: &str) -> Result<Vec<u64>> {
    let size = |text: &str| {
        text.parse::<Size>()
            .map(|s| s.0)
            .map_err(|e| Error::usage(format!("--sizes: {e}")).with_help(SIZES))
    };
    match text.split_once("..") {
        Some((first, _)) if size(first)? == 0 => Err(Error::usage(format!(
            "--sizes {text}: the minimum message size is 1 byte"
        ))
        .with_help(SIZES)),
        Some((first, last)) => values(size(first)?, size(last)?, Step::Multiply(2), "--sizes"),
        None => text.split(',').map(size).collect(),
    }
}

/// Parses `OPTION:FIRST:LAST[:STEP]` and returns one long option per value.
fn loop_options(text: &str) -> Result<Vec<String>> {
    let parts: Vec<&str> = text.split(':').collect();
    let (name, first, last, step) = match parts[..] {
        [name, first, last] => (name, first, last, "*2"),
        [name, first, last, step] => (name, first, last, step),
        _ => {
            return Err(Error::usage(format!(
                "--loop {text}: malformed; expected: OPTION:FIRST:LAST[:STEP], such as msg-size:1:64K:*2 or depth:1:128:+16"
            )));
        }
    };
    let (name, quantity) = variable(name).ok_or_else(|| {
        let available = option::all().filter(|option| option.entry.sweep.is_some());
        let available: Vec<&str> = available.map(KnownOption::long).collect();
        Error::usage(format!(
            "--loop {text}: a loop cannot vary `{name}`; available: {}",
            available.join(", ")
        ))
    })?;
    let number = |text: &str| {
        quantity
            .parse(text)
            .map_err(|e| Error::usage(format!("--loop {name}: {e}")))
    };
    let step = match step.split_at_checked(1) {
        Some(("*", times)) => Step::Multiply(times.parse().map_err(|_| {
            Error::usage(format!(
                "--loop {text}: invalid factor `{times}`; expected: a whole number"
            ))
        })?),
        Some(("+", add)) => Step::Add(number(add)?),
        _ => Step::Add(number(step)?),
    };
    let all = values(
        number(first)?,
        number(last)?,
        step,
        &format!("--loop {text}"),
    )?;
    let unit = quantity.unit();
    Ok(all
        .into_iter()
        .map(|n| format!("--{name}={n}{unit}"))
        .collect())
}

/// Returns the option that a loop varies, from any of its names, as the text before the value.
/// Returns `None` if a loop cannot vary it.
fn variable(name: &str) -> Option<(String, Quantity)> {
    let names = [format!("--{name}"), format!("-{name}")];
    names.iter().find_map(|name| match qperf::lookup(name) {
        OptionName::Value(target) => {
            let option = target.split('=').next()?;
            let quantity = option::find(option)?.entry.sweep?;
            Some((target.to_string(), quantity))
        }
        _ => None,
    })
}

/// Quantity of the values of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// A number or a size in bytes.
    Number,
    /// A time in nanoseconds.
    Time,
    /// A rate in bytes per second.
    Rate,
}

impl Quantity {
    fn parse(self, text: &str) -> std::result::Result<u64, String> {
        match self {
            Self::Number => text.parse::<Size>().map(|s| s.0),
            Self::Time => parse_time(text).map(|t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)),
            Self::Rate => text.parse::<Rate>().map(|rate| rate.0),
        }
    }

    /// Returns the unit of the parsed values.
    fn unit(self) -> &'static str {
        match self {
            Self::Number => "",
            Self::Time => "ns",
            Self::Rate => "B/s",
        }
    }
}

/// Returns the parameters that a run of a sweep sets, for its record. `values` are the options
/// that [`runs`] returned for it.
pub(crate) fn parameters(values: &[String]) -> Vec<Parameter> {
    let parameter = |option: &String| {
        let (name, value) = option.trim_start_matches('-').rsplit_once('=')?;
        Some(Parameter {
            name: match name.split_once('=') {
                Some((option, end)) => format!("{end}-{option}"),
                None => name.to_owned(),
            },
            value: match parse_time(value) {
                Ok(time) if value.ends_with("ns") => show_time(time),
                _ => value.to_owned(),
            },
        })
    };
    values.iter().filter_map(parameter).collect()
}

fn values(first: u64, last: u64, step: Step, what: &str) -> Result<Vec<u64>> {
    let next = |n: u64| match step {
        Step::Add(add) => n.checked_add(add),
        Step::Multiply(times) => n.checked_mul(times),
    };
    if first > last {
        return Err(Error::usage(format!(
            "{what}: the first value is above the last"
        )));
    }
    if first != last && next(first) == Some(first) {
        return Err(Error::usage(format!(
            "{what}: this step never reaches the last value"
        )));
    }
    let all: Vec<u64> = std::iter::successors(Some(first), |n| next(*n))
        .take_while(|n| *n <= last)
        .take(MAX_RUNS + 1)
        .collect();
    if all.len() > MAX_RUNS {
        return Err(Error::usage(format!("{what}: more than {MAX_RUNS} values")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn runs_of(line: &str) -> Result<Vec<String>> {
        let options =
            Options::try_parse_from(std::iter::once("rperf").chain(line.split_whitespace()))
                .unwrap();
        Ok(runs(&options)?.iter().map(|run| run.join(" ")).collect())
    }

    #[test]
    fn sizes_double_or_are_listed() {
        assert_eq!(
            runs_of("--sizes=2..16").unwrap(),
            [
                "--msg-size=2",
                "--msg-size=4",
                "--msg-size=8",
                "--msg-size=16"
            ]
        );
        assert_eq!(
            runs_of("--sizes=64,4K").unwrap(),
            ["--msg-size=64", "--msg-size=4096"]
        );
        assert_eq!(runs_of("--sizes=2..8M").unwrap().len(), 23);
        assert_eq!(runs_of("").unwrap(), [""]);
    }

    #[test]
    fn loops_nest_and_have_a_default_step() {
        assert_eq!(
            runs_of("--loop=msg_size:1:4").unwrap(),
            ["--msg-size=1", "--msg-size=2", "--msg-size=4"]
        );
        let nested = runs_of("--loop=depth:1:2:1 --loop=m:1K:2K:+1K").unwrap();
        let expected = [
            "--depth=1 --msg-size=1024",
            "--depth=1 --msg-size=2048",
            "--depth=2 --msg-size=1024",
            "--depth=2 --msg-size=2048",
        ];
        assert_eq!(nested, expected);
        assert_eq!(
            runs_of("--loop=time:500ms:1:250ms").unwrap()[1],
            "--time=750000000ns"
        );
    }

    #[test]
    fn values_of_a_loop_have_the_units_of_its_option() {
        assert_eq!(
            runs_of("--loop=rate-limit:1Gb/s:2Gb/s:+1Gb/s").unwrap(),
            ["--rate-limit=125000000B/s", "--rate-limit=250000000B/s"]
        );
        let options = ["--time=1500000000ns", "--traffic-class=32"].map(str::to_owned);
        let parameters: Vec<_> = parameters(&options)
            .into_iter()
            .map(|p| format!("{} {}", p.name, p.value))
            .collect();
        assert_eq!(parameters, ["time 1.5 s", "traffic-class 32"]);
    }

    #[test]
    fn invalid_loops_are_rejected() {
        for (line, expected) in [
            ("--loop=msg_size:1:4:0", "never reaches the last value"),
            ("--loop=msg_size:0:4", "never reaches the last value"),
            ("--loop=msg_size:1:4:*1", "never reaches the last value"),
            ("--loop=msg_size:8:4", "above the last"),
            ("--loop=verify:1:4", "a loop cannot vary `verify`"),
            ("--loop=multicast:1:4", "a loop cannot vary `multicast`"),
            ("--loop=msg_size", "OPTION:FIRST:LAST[:STEP]"),
            ("--loop=msg_size:1:1M:1", "more than 10000"),
            (
                "--loop=depth:1:1000:1 --loop=msg_size:1:1000:1",
                "the maximum is 10000",
            ),
            ("--loop=rate-limit:1:4", "such as 10Gb/s"),
            ("--sizes=1..x", "--sizes 2..8M"),
            ("--sizes=2-8M", "--sizes 2..8M"),
            ("--sizes=0..8", "the minimum message size is 1 byte"),
            ("--sizes=8..1", "above the last"),
        ] {
            let text = runs_of(line).unwrap_err().to_string();
            assert!(text.contains(expected), "{line}: {text}");
        }
    }
}
