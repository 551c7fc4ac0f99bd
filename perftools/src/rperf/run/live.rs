//! Output while tests run: interval lines on standard output, and a progress bar on a terminal.

use std::env;
use std::io::{IsTerminal, Write, stderr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::error::Error;
use base::units::Style;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use measure::spec::test::Test;
use measure::stats::interval::{Interval, format_interval};
use measure::stats::monitor::{Observer, Progress};
use report::json::{JsonContent, TestInterval};

use super::print;
use crate::rperf::args::command_line::Options;

/// Maximum width of the progress bar with its texts.
const MAX_WIDTH: usize = 79;
/// Steps of the progress bar from 0 to 100 %.
const STEPS: u32 = 1000;

/// Format of the interval lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IntervalFormat {
    None,
    Text,
    Json,
}

/// Shows the intervals and the progress of the running test.
#[derive(Debug)]
pub(super) struct LiveOutput {
    style: Style,
    intervals: IntervalFormat,
    bar: Option<ProgressBar>,
    tests: usize,
    current: Mutex<CurrentTest>,
    host: Option<String>,
}

/// State of the running test.
#[derive(Debug, Default)]
struct CurrentTest {
    /// Position in the list of tests, from 1.
    number: usize,
    test: Option<Test>,
    /// `true` after the name of the test was printed above its first interval.
    name_printed: bool,
    /// First error from writing to standard output.
    error: Option<Error>,
}

impl LiveOutput {
    /// Creates the output: a progress bar if standard error is a terminal, and interval lines if
    /// the options request them.
    pub(super) fn new(options: &Options, host: Option<&str>, style: Style, tests: usize) -> Self {
        let intervals = match options.interval {
            Some(_) if options.json => IntervalFormat::Json,
            Some(_) if !options.tuning.is_sweep() => IntervalFormat::Text,
            _ => IntervalFormat::None,
        };
        // A terminal without cursor movement cannot show a bar.
        let is_dumb = env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
        let bar = (stderr().is_terminal() && !is_dumb).then(new_bar);
        Self {
            style,
            intervals,
            bar,
            tests,
            current: Mutex::default(),
            host: host.map(str::to_owned),
        }
    }

    /// Starts the next test. Returns its observer, or `None` if there is nothing to show.
    pub(super) fn begin(&self, test: Test) -> Option<&dyn Observer> {
        let mut current = self.lock();
        current.number += 1;
        current.test = Some(test);
        current.name_printed = false;
        if let Some(bar) = &self.bar {
            bar.set_message("");
            bar.set_prefix(match self.tests {
                1 => test.name().to_owned(),
                total => format!("{}/{total} {}", current.number, test.name()),
            });
            bar.reset();
        }
        (self.bar.is_some() || self.intervals != IntervalFormat::None).then_some(self)
    }

    /// Ends the test and clears its progress bar.
    pub(super) fn end(&self) -> Result<(), Error> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            // Some terminals do not erase a line that is longer than they are wide, or at all.
            let _ = write!(stderr(), "\r{:MAX_WIDTH$}\r", "");
        }
        self.lock().error.take().map_or(Ok(()), Err)
    }

    /// Returns `true` if the name of the test was already printed.
    pub(super) fn is_name_printed(&self) -> bool {
        self.lock().name_printed
    }

    fn lock(&self) -> MutexGuard<'_, CurrentTest> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for LiveOutput {
    fn interval(&self, interval: &Interval) {
        let mut current = self.lock();
        let Some(test) = current.test else { return };
        let text = match self.intervals {
            IntervalFormat::None => return,
            IntervalFormat::Json => JsonContent::Interval(TestInterval {
                test,
                host: self.host.clone(),
                interval: *interval,
            })
            .render(),
            IntervalFormat::Text if current.name_printed => format_interval(interval, self.style),
            IntervalFormat::Text => format!(
                "{}:\n{}",
                test.name(),
                format_interval(interval, self.style)
            ),
        };
        current.name_printed = self.intervals == IntervalFormat::Text;
        let printed = match &self.bar {
            Some(bar) => bar.suspend(|| print(&text)),
            None => print(&text),
        };
        current.error = current.error.take().or(printed.err());
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

/// Creates the progress bar. It has no colors, so `NO_COLOR` needs no support.
fn new_bar() -> ProgressBar {
    let target = ProgressDrawTarget::stderr_with_hz(5);
    let style = ProgressStyle::with_template("{prefix} [{bar:20}] {elapsed} {msg}");
    let style = style
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ");
    ProgressBar::with_draw_target(Some(STEPS.into()), target).with_style(style)
}
