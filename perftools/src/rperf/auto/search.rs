//! Looks for the best settings, one setting after the other; each step costs a measurement, and
//! their number is bounded.

use std::time::Duration;

use super::Runner;
use super::settings::{Setting, Settings};
use crate::common::error::{Kind, Result};
use crate::rperf::args::options::MIN_TRIES;
use crate::rperf::report::advice::Goal;
use crate::rperf::report::record::Measured;
use crate::rperf::spec::test::Test;
use crate::rperf::spec::{Limit, Spec};

/// The most measurements of one search, where no other number is asked for.
pub const MOST: u32 = 60;
/// A setting is better if it brings so many times as much, twice.
const BETTER: f64 = 1.05;

/// A measurement.
#[derive(Clone, Debug)]
pub(super) struct Trial {
    pub(super) settings: Settings,
    /// More is better.
    pub(super) score: f64,
    pub(super) measured: Measured,
}

/// What a search for one goal found.
#[derive(Clone, Debug)]
pub(super) struct SearchResult {
    pub(super) goal: Goal,
    pub(super) spec: Spec,
    pub(super) start: Trial,
    pub(super) best: Trial,
    /// All of them, in the order in which they were made.
    pub(super) all: Vec<Trial>,
}

/// Measures.
pub(super) struct Search<'a, R> {
    runner: &'a mut R,
    time: Duration,
    most: u32,
    pub(super) made: u32,
    /// The number at which the search for a goal leaves the rest to those that follow.
    until: u32,
    pub(super) refused: Vec<String>,
}

impl<'a, R: Runner> Search<'a, R> {
    pub(super) fn new(runner: &'a mut R, time: Duration, most: u32) -> Self {
        Self {
            runner,
            time,
            most: most.max(MIN_TRIES),
            made: 0,
            until: 0,
            refused: Vec::new(),
        }
    }

    /// What a goal may take of the measurements that are left: a share by how much there is to
    /// vary, when what must be is set aside.
    fn share(&self, goal: Goal) -> u32 {
        let (must, of, all) = match goal {
            Goal::Latency => (MIN_TRIES, 1, 6),
            Goal::Rate => (4, 3, 5),
            Goal::Bandwidth => (2, 1, 1),
        };
        1 + self.most.saturating_sub(self.made + must) * of / all
    }

    /// Finds the best settings for `goal`, from those of `spec` on.
    pub(super) fn find_best(&mut self, goal: Goal, spec: &Spec) -> Result<SearchResult> {
        let (test, axes): (_, &[Setting]) = match goal {
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
        self.until = self.made + self.share(goal);
        let spec = Spec {
            test,
            limit: Limit::Time(self.time),
            ..spec.with_msg_size(size(goal))
        };
        let start = self.measure(goal, &spec, Settings::from_spec(&spec))?;
        let mut found = SearchResult {
            goal,
            spec,
            start: start.clone(),
            best: start.clone(),
            all: vec![start],
        };
        for axis in axes {
            for settings in found.best.settings.others(*axis, found.spec.msg_size) {
                self.attempt(&mut found, settings)?;
            }
        }
        Ok(found)
    }

    /// Takes settings that are better, and not by chance.
    fn attempt(&mut self, found: &mut SearchResult, settings: Settings) -> Result<()> {
        let Some(first) = self.measure_or_refuse(found, settings)? else {
            return Ok(());
        };
        if first.score < found.best.score * BETTER {
            return Ok(());
        }
        let Some(second) = self.measure_or_refuse(found, settings)? else {
            return Ok(());
        };
        let lesser = if second.score < first.score {
            second
        } else {
            first
        };
        if lesser.score >= found.best.score * BETTER {
            found.best = lesser;
        }
        Ok(())
    }

    /// The best settings once more, but both ends sleep when they can: their processor time says
    /// how busy they are.
    pub(super) fn asleep(&mut self, found: &mut SearchResult) -> Result<Option<Trial>> {
        let settings = Settings {
            wait: crate::rperf::spec::modes::Wait::Events,
            ..found.best.settings
        };
        if let Some(known) = found
            .all
            .iter()
            .rev()
            .find(|tried| tried.settings == settings)
        {
            return Ok(Some(known.clone()));
        }
        self.until = self.made + 1;
        self.measure_or_refuse(found, settings)
    }

    /// None where these settings are refused, or too many were tried.
    fn measure_or_refuse(
        &mut self,
        found: &mut SearchResult,
        settings: Settings,
    ) -> Result<Option<Trial>> {
        if self.made >= self.until {
            return Ok(None);
        }
        match self.measure(found.goal, &found.spec, settings) {
            Ok(tried) => {
                found.all.push(tried.clone());
                Ok(Some(tried))
            }
            // What the device or the server will not do is not tried; a peer that is gone stays
            // gone.
            Err(error)
                if matches!(
                    error.kind(),
                    Kind::Limit | Kind::Device | Kind::Peer | Kind::Test
                ) =>
            {
                self.refused.push(format!(
                    "{}: {error}",
                    settings.words(found.start.settings).join(" ")
                ));
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn measure(&mut self, goal: Goal, spec: &Spec, settings: Settings) -> Result<Trial> {
        self.made += 1;
        let measured = self.runner.run(&settings.on(spec))?;
        let score = figure(goal, &measured);
        // Of times the lesser is better.
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

/// What the goal is about.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
pub(super) fn figure(goal: Goal, measured: &Measured) -> f64 {
    match goal {
        Goal::Latency => measured.latency.map_or(f64::MAX, |p| p.p50 as f64),
        Goal::Rate => measured.summary.msg_rate,
        Goal::Bandwidth => measured.summary.bandwidth.unwrap_or(0.0),
    }
}

fn size(goal: Goal) -> u64 {
    match goal {
        Goal::Latency => 1,
        Goal::Rate => 64,
        Goal::Bandwidth => 64 << 10,
    }
}
