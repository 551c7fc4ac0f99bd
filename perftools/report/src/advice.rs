//! Results of `rperf tune`: the best settings for each goal and the bottleneck.

use std::fmt::Write;

use base::units::{Figure, Size, Style};
use serde::{Deserialize, Serialize};

use crate::text::wrap;

/// The resource that limits a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[cfg_attr(any(test, feature = "testing"), schemars(rename = "Bound"))]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The client's thread is fully used.
    LocalThread,
    /// The server's thread is fully used.
    RemoteThread,
    /// All processors of the client's host are fully used.
    LocalHost,
    /// All processors of the server's host are fully used.
    RemoteHost,
    /// The link is fully used.
    Link,
    /// The path: the counters of a port show errors, losses or congestion.
    Path,
    /// The latency of the path. More messages in flight improve the result.
    Latency,
    /// None of the above. The device or the path limits the result.
    Unknown,
}

/// A quantity that `rperf tune` optimizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Latency of a small message, in nanoseconds.
    Latency,
    /// Rate of small messages, per second.
    Rate,
    /// Bandwidth, in bytes per second.
    Bandwidth,
}

/// Result of the search for one goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct GoalResult {
    /// Goal of the search.
    pub goal: Goal,
    /// Message size in bytes.
    pub size: u64,
    /// Best result in nanoseconds, messages per second or bytes per second.
    pub best: f64,
    /// Result with the initial settings, in the same unit.
    pub start: f64,
    /// Command with the best settings.
    pub command: String,
    /// Bottleneck; null for latency.
    pub bound: Option<Bottleneck>,
    /// Explanation of the bottleneck.
    pub why: String,
}

/// Results of the search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct TuneResult {
    /// Path between the hosts.
    pub path: String,
    /// Number of measurements.
    pub measurements: u32,
    /// Result for each goal.
    pub findings: Vec<GoalResult>,
    /// Approximate message size in bytes at which the limiting factor changes from the message
    /// rate to the bandwidth.
    pub crossing: Option<u64>,
    /// Settings that the device or the server rejected.
    pub refused: Vec<String>,
}

impl GoalResult {
    /// Returns the improvement factor over the initial settings.
    pub fn gain(&self) -> f64 {
        let (better, worse) = if self.goal == Goal::Latency {
            (self.start, self.best)
        } else {
            (self.best, self.start)
        };
        if worse > 0.0 { better / worse } else { 1.0 }
    }

    /// Formats the best result with its unit.
    fn best_with_unit(&self, style: Style) -> Figure {
        match self.goal {
            Goal::Latency => style.time(self.best),
            Goal::Rate => style.rate(self.best),
            Goal::Bandwidth => style.bandwidth(self.best),
        }
    }
}

impl TuneResult {
    /// Formats the advice as text.
    pub fn render(&self, style: Style) -> String {
        let mut out = format!("{}, {} measurements\n\n", self.path, self.measurements);
        // Writing to a string never fails.
        for finding in &self.findings {
            let name = match finding.goal {
                Goal::Latency => "latency",
                Goal::Rate => "message rate",
                Goal::Bandwidth => "bandwidth",
            };
            let _ = writeln!(
                out,
                "{name}, messages of {}: {}, {}\n    {}\n    {}\n",
                if finding.size == 1 {
                    "1 byte".to_owned()
                } else {
                    Size(finding.size).to_string()
                },
                finding.best_with_unit(style),
                if finding.gain() < 1.01 {
                    "with the initial settings".to_owned()
                } else {
                    format!(
                        "{:.2} times as good as with the initial settings",
                        finding.gain()
                    )
                },
                // The lines after the first are indented below it.
                wrap(&format!("limit: {}", finding.why), 89).join("\n           "),
                finding.command,
            );
        }
        if let Some(crossing) = self.crossing {
            let _ = writeln!(
                out,
                "Messages smaller than about {} are limited by the message rate, larger ones by the bandwidth.",
                Size(crossing)
            );
        }
        for refused in &self.refused {
            let _ = writeln!(out, "Not tried: {refused}");
        }
        out
    }
}
