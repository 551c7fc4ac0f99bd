//! `rperf tune`: runs the search against a server and prints its advice.

use std::time::{Duration, SystemTime};

use base::error::{Error, Result};
use base::shell;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};
use measure::stats::monitor::MonitorOptions;
use measure::transport::verbs::VerbsBackend;
use report::json::JsonContent;
use report::record::{Measured, Outcome, Record};
use session::client;
use session::connect::ServerAddr;

use super::diagnosis::{RecordDiagnosis, outcome};
use super::live::LiveOutput;
use super::print;
use crate::rperf::args::acts_on;
use crate::rperf::args::command_line::Options;
use crate::rperf::tune::verdict::PathLimits;
use crate::rperf::tune::{self as search, Runner};

/// Default length of each measurement.
const TIME: Duration = Duration::from_millis(300);
/// Default warm-up before each measurement of a certain length.
const WARM_UP: Duration = Duration::from_millis(50);

/// Runs tests against a server and prints their records as JSON, if the options request it.
struct ClientRunner<'a> {
    server_addr: &'a ServerAddr,
    live: LiveOutput,
    host: Option<&'a str>,
    command: &'a str,
    json: bool,
}

impl Runner for ClientRunner<'_> {
    fn run(&mut self, spec: &Spec) -> Result<Measured> {
        let monitor_options = MonitorOptions {
            interval: None,
            observer: self.live.begin(spec.test),
        };
        let started = SystemTime::now();
        let answer = client::run(
            self.server_addr,
            spec,
            &VerbsBackend,
            &RecordDiagnosis,
            monitor_options,
        );
        self.live.end()?;
        match outcome(answer?) {
            Outcome::Measured(measured) => {
                if self.json {
                    let outcome = Outcome::Measured(measured.clone());
                    let record = Record {
                        command: Some(self.command.to_owned()),
                        ..Record::new(spec.test, self.host, outcome).started_at(started)
                    };
                    print(&JsonContent::Test(Box::new(record)).render())?;
                }
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
    command_line: &str,
) -> Result<()> {
    let format = options.text_format();
    let mut spec = base.clone();
    let limit = match (options.messages, options.time) {
        (None, None) => Limit::Time(TIME),
        _ => spec.limit,
    };
    if matches!(limit, Limit::Time(_)) && spec.tuning.warm_up.is_zero() {
        spec.tuning.warm_up = WARM_UP;
    }
    let live = LiveOutput::new(
        options,
        host,
        format.style,
        search::MAX_MEASUREMENTS as usize,
    );
    let mut runner = ClientRunner {
        server_addr,
        live,
        host,
        command: command_line,
        json: options.json,
    };
    let path_limits = |m: &Measured| PathLimits {
        #[allow(clippy::cast_precision_loss)] // A rate below 2^53.
        link: m.local.hardware.link_rate.map(|rate| rate as f64),
        one_host: host.is_none(),
    };
    let advice = search::run(
        &mut runner,
        &spec,
        limit,
        search::MAX_MEASUREMENTS,
        path_limits,
        |test| command(host, words, test),
    )?;
    if options.json {
        return print(&JsonContent::Tune(advice).render());
    }
    print(&advice.render(format.style))
}

/// Returns a command for a test, with the user's own options that act on it.
fn command(host: Option<&str>, words: &[String], test: Test) -> String {
    let words = words.iter().map(String::as_str);
    let words = words.filter(|word| acts_on(word, test));
    let command = ["rperf"].into_iter().chain(words).chain(host);
    shell::join(command.chain([test.name()]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_has_the_options_that_act_on_its_test() {
        let words = ["--mtu=1024", "--rate-limit=1Gb/s"].map(str::to_owned);
        for (test, expected) in [
            (Test::RcLat, "rperf --mtu=1024 node rc_lat"),
            (Test::RcBw, "rperf --mtu=1024 --rate-limit=1Gb/s node rc_bw"),
        ] {
            assert_eq!(command(Some("node"), &words, test), expected);
        }
    }
}
