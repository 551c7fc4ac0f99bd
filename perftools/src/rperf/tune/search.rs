//! Searches for the best settings, one setting after the other, with a limited number of
//! measurements.

use base::error::{Kind, Result};
use measure::spec::modes::Wait;
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};
use report::advice::Goal;
use report::record::Measured;

use super::Runner;
use super::settings::{SearchSettings, Setting};

/// Default limit on the number of measurements.
pub(crate) const MAX_MEASUREMENTS: u32 = 60;
/// Minimum number of measurements: one of each of the three goals with the initial settings, and
/// two repeated with both ends waiting for events.
const MIN_MEASUREMENTS: u32 = 5;
/// Smallest improvement of the score, as a factor, for which settings are accepted. Two
/// measurements must confirm it.
const MIN_GAIN: f64 = 1.05;

/// Measurement with certain settings.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) settings: SearchSettings,
    /// Figure of merit. A higher score is better.
    pub(super) score: f64,
    pub(super) measured: Measured,
}

/// Result of the search for one goal.
#[derive(Clone, Debug)]
pub(super) struct SearchResult {
    pub(super) goal: Goal,
    pub(super) spec: Spec,
    pub(super) start: Trial,
    pub(super) best: Trial,
    /// All trials in the order of measurement, including `start`.
    pub(super) trials: Vec<Trial>,
}

/// Search that measures through a [`Runner`] and counts its measurements.
pub(super) struct Search<'a, R> {
    runner: &'a mut R,
    limit: Limit,
    max_measurements: u32,
    pub(super) measurements: u32,
    /// Number of measurements at which the current goal must stop, to leave enough for the next
    /// goals.
    stop_at: u32,
    /// Settings that the device or the server refused, each with its error.
    pub(super) refused: Vec<String>,
}

impl<'a, R: Runner> Search<'a, R> {
    pub(super) fn new(runner: &'a mut R, limit: Limit, max_measurements: u32) -> Self {
        Self {
            runner,
            limit,
            max_measurements: max_measurements.max(MIN_MEASUREMENTS),
            measurements: 0,
            stop_at: 0,
            refused: Vec::new(),
        }
    }

    /// Returns the number of measurements that a goal may use. The mandatory measurements of this
    /// and the following goals are set aside. The goal gets its first measurement and a fraction of
    /// the rest, according to the number of settings that it varies.
    fn budget(&self, goal: Goal) -> u32 {
        let (mandatory, numerator, denominator) = match goal {
            Goal::Latency => (MIN_MEASUREMENTS, 1, 6),
            Goal::Rate => (4, 3, 5),
            Goal::Bandwidth => (2, 1, 1),
        };
        let spare = self
            .max_measurements
            .saturating_sub(self.measurements + mandatory);
        1 + spare * numerator / denominator
    }

    /// Finds the best settings for `goal`, starting from those of `spec`.
    pub(super) fn find_best(&mut self, goal: Goal, spec: &Spec) -> Result<SearchResult> {
        let (test, varied): (_, &[Setting]) = match goal {
            Goal::Latency => (Test::RcLat, &[Setting::Wait, Setting::Inline]),
            Goal::Rate => (
                Test::RcBw,
                &[
                    Setting::Wait,
                    Setting::Depth,
                    Setting::PostList,
                    Setting::Inline,
                    Setting::Qps,
                ],
            ),
            Goal::Bandwidth => (Test::RcBw, &[Setting::Wait, Setting::Depth, Setting::Qps]),
        };
        self.stop_at = self.measurements + self.budget(goal);
        let spec = Spec {
            test,
            limit: self.limit,
            ..spec.with_msg_size(msg_size(goal))
        };
        let start = self.measure(goal, &spec, SearchSettings::from_spec(&spec))?;
        let mut found = SearchResult {
            goal,
            spec,
            start: start.clone(),
            best: start.clone(),
            trials: vec![start],
        };
        for setting in varied {
            for settings in found.best.settings.variants(*setting, found.spec.msg_size) {
                self.try_settings(&mut found, settings)?;
            }
        }
        Ok(found)
    }

    /// Measures settings and accepts them if they are better. A second measurement confirms this,
    /// because a single one may be better at random.
    fn try_settings(&mut self, found: &mut SearchResult, settings: SearchSettings) -> Result<()> {
        let Some(first) = self.measure_or_refuse(found, settings)? else {
            return Ok(());
        };
        if first.score < found.best.score * MIN_GAIN {
            return Ok(());
        }
        let Some(second) = self.measure_or_refuse(found, settings)? else {
            return Ok(());
        };
        let worse = if second.score < first.score {
            second
        } else {
            first
        };
        if worse.score >= found.best.score * MIN_GAIN {
            found.best = worse;
        }
        Ok(())
    }

    /// Measures the best settings with both ends sleeping while they wait. Then their processor
    /// time shows how busy they are, which it does not while they poll.
    pub(super) fn measure_sleeping(&mut self, found: &mut SearchResult) -> Result<Option<Trial>> {
        let settings = SearchSettings {
            wait: Wait::Events,
            ..found.best.settings
        };
        if let Some(known) = found
            .trials
            .iter()
            .rev()
            .find(|trial| trial.settings == settings)
        {
            return Ok(Some(known.clone()));
        }
        self.stop_at = self.measurements + 1;
        self.measure_or_refuse(found, settings)
    }

    /// Measures settings. Returns `None` if they are refused, or if no measurement is left.
    fn measure_or_refuse(
        &mut self,
        found: &mut SearchResult,
        settings: SearchSettings,
    ) -> Result<Option<Trial>> {
        if self.measurements >= self.stop_at {
            return Ok(None);
        }
        match self.measure(found.goal, &found.spec, settings) {
            Ok(trial) => {
                found.trials.push(trial.clone());
                Ok(Some(trial))
            }
            // Settings that the device or the server refuses are skipped. Any other error, such as
            // a peer that is gone, would hit all further measurements too.
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Limit | Kind::Device | Kind::Peer | Kind::Test
                ) =>
            {
                self.refused.push(format!(
                    "{}: {error}",
                    settings.options(found.start.settings).join(" ")
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn measure(&mut self, goal: Goal, spec: &Spec, settings: SearchSettings) -> Result<Trial> {
        self.measurements += 1;
        let measured = self.runner.run(&settings.apply_to(spec))?;
        let score = figure(goal, &measured);
        // A lower latency is better.
        let score = if goal == Goal::Latency {
            1.0 / score.max(1.0)
        } else {
            score
        };
        Ok(Trial {
            settings,
            score,
            measured,
        })
    }
}

/// Returns the figure that a goal optimizes: nanoseconds, messages per second or bytes per second.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
pub(super) fn figure(goal: Goal, measured: &Measured) -> f64 {
    match goal {
        Goal::Latency => measured.latency.map_or(f64::MAX, |p| p.p50 as f64),
        Goal::Rate => measured.summary.msg_rate,
        Goal::Bandwidth => measured.summary.bandwidth.unwrap_or(0.0),
    }
}

/// Returns the message size in bytes that a goal is measured with.
fn msg_size(goal: Goal) -> u64 {
    match goal {
        Goal::Latency => 1,
        Goal::Rate => 64,
        Goal::Bandwidth => 64 << 10,
    }
}
