//! What is shown while tests run: lines of intervals on standard output, and a bar on a terminal.

use std::io::{IsTerminal, stderr};
use std::sync::{Mutex, PoisonError};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::print;
use crate::common::error::Error;
use crate::common::units::Style;
use crate::rperf::args::options::Options;
use crate::rperf::report::json::IntervalLine;
use crate::rperf::spec::Spec;
use crate::rperf::spec::test::Test;
use crate::rperf::stats::interval::{Interval, line};
use crate::rperf::stats::monitor::{Observer, Progress};

/// Steps of a bar: what it shows is a share.
const STEPS: u32 = 1000;

/// How intervals are printed as they end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lines {
    None,
    Text,
    Json,
}

/// Shows how tests go.
#[derive(Debug)]
pub(super) struct Live {
    style: Style,
    lines: Lines,
    bar: Option<ProgressBar>,
    tests: usize,
    now: Mutex<CurrentTest>,
    host: Option<String>,
}

/// The test that runs.
#[derive(Debug, Default)]
struct CurrentTest {
    number: usize,
    test: Option<Test>,
    /// Its name was printed, and lines follow.
    begun: bool,
    /// Standard output is gone.
    failed: Option<Error>,
}

impl Live {
    /// A bar where standard error is a terminal; lines where intervals were asked for.
    pub(super) fn new(options: &Options, host: Option<&str>, style: Style, tests: usize) -> Self {
        let lines = match options.interval {
            Some(_) if options.json_lines => Lines::Json,
            Some(_) if !options.json && !options.csv && !options.tuning.is_sweep() => Lines::Text,
            _ => Lines::None,
        };
        let bar = stderr().is_terminal().then(bar);
        Self {
            style,
            lines,
            bar,
            tests,
            now: Mutex::default(),
            host: host.map(str::to_owned),
        }
    }

    /// The next test begins; who is to be told how it goes, if anybody.
    pub(super) fn begin(&self, spec: &Spec) -> Option<&dyn Observer> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.number += 1;
        now.test = Some(spec.test);
        now.begun = false;
        if let Some(bar) = &self.bar {
            bar.set_message("");
            bar.set_prefix(match self.tests {
                1 => spec.test.name().to_owned(),
                all => format!("{}/{all} {}", now.number, spec.test.name()),
            });
            bar.reset();
        }
        (self.bar.is_some() || self.lines != Lines::None).then_some(self)
    }

    /// The test has ended: nothing of it stays on the terminal.
    pub(super) fn end(&self) -> Result<(), Error> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.now
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .failed
            .take()
            .map_or(Ok(()), Err)
    }

    /// Whether the test's name was printed already.
    pub(super) fn has_begun(&self) -> bool {
        self.now
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .begun
    }
}

impl Observer for Live {
    fn interval(&self, interval: &Interval) {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(test) = now.test else { return };
        let text = match self.lines {
            Lines::None => return,
            Lines::Json => IntervalLine {
                test,
                host: self.host.clone(),
                interval: *interval,
            }
            .render(),
            Lines::Text if now.begun => line(interval, self.style),
            Lines::Text => format!("{}:\n{}", test.name(), line(interval, self.style)),
        };
        now.begun = self.lines == Lines::Text;
        let printed = match &self.bar {
            Some(bar) => bar.suspend(|| print(&text)),
            None => print(&text),
        };
        now.failed = now.failed.take().or(printed.err());
    }

    fn progress(&self, progress: &Progress) {
        let Some(bar) = &self.bar else { return };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 0 to 1.
        bar.set_position((progress.done * f64::from(STEPS)) as u64);
        let figure = match (progress.bandwidth, progress.latency) {
            (Some(bandwidth), _) => Some(self.style.bandwidth(bandwidth)),
            (None, latency) => latency.map(|nanos| self.style.time(nanos)),
        };
        if let Some(figure) = figure {
            bar.set_message(figure.to_string());
        }
    }
}

/// A bar in no colour: there is nothing for `NO_COLOR` to switch off.
fn bar() -> ProgressBar {
    let server_addr = ProgressDrawTarget::stderr_with_hz(5);
    let style = ProgressStyle::with_template("{prefix} [{bar:30}] {elapsed} {msg}");
    let style = style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(STEPS.into()), server_addr).with_style(style)
}
