//! `--auto`: runs the search against a server and prints its advice.

use std::time::Duration;

use super::live::LiveOutput;
use super::print;
use crate::common::error::{Error, Result};
use crate::ribinfo::collect::rate::Rate;
use crate::ribinfo::collect::root::Root;
use crate::rperf::args::command_line::Options;
use crate::rperf::auto::verdict::PathLimits;
use crate::rperf::auto::{self, Runner};
use crate::rperf::control::client::{self, ServerAddr};
use crate::rperf::report::json::Document;
use crate::rperf::report::record::{Measured, Outcome, Record};
use crate::rperf::report::text::Format;
use crate::rperf::spec::Spec;
use crate::rperf::stats::monitor::MonitorOptions;
use crate::rperf::transport::verbs::VerbsBackend;

/// Default length of each measurement.
const TIME: Duration = Duration::from_millis(300);
/// Default warm-up before each measurement.
const WARM_UP: Duration = Duration::from_millis(50);

/// Runs tests against a server and keeps their records.
struct ClientRunner<'a> {
    server_addr: &'a ServerAddr,
    live: LiveOutput,
    records: Vec<Record>,
    host: Option<&'a str>,
}

impl Runner for ClientRunner<'_> {
    fn run(&mut self, spec: &Spec) -> Result<Measured> {
        let monitor_options = MonitorOptions {
            interval: None,
            observer: self.live.begin(spec),
        };
        let outcome = client::run(self.server_addr, spec, &VerbsBackend, monitor_options);
        self.live.end()?;
        match outcome? {
            Outcome::Measured(measured) => {
                let outcome = Outcome::Measured(measured.clone());
                self.records.push(Record {
                    test: spec.test,
                    host: self.host.map(str::to_owned),
                    outcome,
                });
                Ok(*measured)
            }
            other => Err(Error::protocol(format!(
                "cannot search: expected a measurement, got {other:?}"
            ))),
        }
    }
}

/// Searches for the best settings and prints the advice. `words` are the user's own options, which
/// the suggested commands repeat.
pub(super) fn run(
    host: Option<&str>,
    server_addr: &ServerAddr,
    base: &Spec,
    options: &Options,
    words: &[String],
) -> Result<()> {
    let format = Format::new(options);
    let mut spec = base.clone();
    if spec.tuning.warm_up.is_zero() {
        spec.tuning.warm_up = WARM_UP;
    }
    let max_measurements = options.tries.unwrap_or(auto::MAX_MEASUREMENTS);
    let live = LiveOutput::new(options, host, format.style, max_measurements as usize);
    let mut runner = ClientRunner {
        server_addr,
        live,
        records: Vec::new(),
        host,
    };
    let path_limits = |m: &Measured| PathLimits {
        link: link_rate(&m.local.device, m.local.port),
        one_host: host.is_none(),
    };
    let command = |test: &str| {
        let words = words.iter().map(|word| shell_quote(word));
        let command = ["rperf".to_owned()]
            .into_iter()
            .chain(words)
            .chain(host.map(shell_quote))
            .chain([test.to_owned()]);
        command.collect::<Vec<_>>().join(" ")
    };
    let advice = auto::run(
        &mut runner,
        &spec,
        options.time.unwrap_or(TIME),
        max_measurements,
        path_limits,
        command,
    )?;
    if options.json {
        let document = Document {
            auto: Some(advice),
            ..Document::new(runner.records)
        };
        return print(&document.render());
    }
    print(&advice.render(format.style))
}

/// Returns the link rate of a port in bits per second, or `None` for a software device, whose
/// reported rate means nothing.
fn link_rate(device: &str, port: u8) -> Option<f64> {
    let root = Root::host();
    let directory = format!("/sys/class/infiniband/{device}");
    let rate = root
        .exists(&format!("{directory}/device"))
        .then(|| root.text(&format!("{directory}/ports/{port}/rate")))?;
    Rate::parse(&rate?).map(|rate| f64::from(rate.mbps) * 1e6)
}

/// Quotes a word for the shell if necessary.
fn shell_quote(word: &str) -> String {
    if word
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "-_./:=,+[]%".contains(c))
    {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_special_characters_are_quoted() {
        assert_eq!(
            (shell_quote("--id=mlx5_0:1"), shell_quote("[fe80::1%eth0]")),
            ("--id=mlx5_0:1".into(), "[fe80::1%eth0]".into())
        );
        assert_eq!(shell_quote("a b'c"), "'a b'\\''c'");
    }
}
