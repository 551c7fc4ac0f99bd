//! What `--auto` found: the best settings of each goal, and what limits it.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::common::units::{Figure, Size, Style};

/// What limits a pair of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "Bound"))]
#[serde(rename_all = "snake_case")]
pub enum Bottleneck {
    /// The thread of this end is busy.
    LocalThread,
    /// The server's thread is busy.
    RemoteThread,
    /// All processors of this host are busy.
    LocalHost,
    /// All processors of the server's host are.
    RemoteHost,
    /// The link is full.
    Link,
    /// What is under way: more of it brings more.
    Latency,
    /// None of these: the device, or the path.
    Unknown,
}

/// What a goal is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// The time of one small message, in nanoseconds.
    Latency,
    /// Small messages a second.
    Rate,
    /// Bytes a second.
    Bandwidth,
}

/// What was found of a goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Finding {
    /// Of which.
    pub goal: Goal,
    /// Bytes of a message.
    pub size: u64,
    /// The best figure: nanoseconds, messages a second or bytes a second.
    pub best: f64,
    /// The same with the settings that it started from.
    pub start: f64,
    /// A command that measures it so.
    pub command: String,
    /// What limits it; none for latency.
    pub bound: Option<Bottleneck>,
    /// That in words.
    pub why: String,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Advice {
    /// Over which path.
    pub path: String,
    /// How many measurements were made.
    pub measurements: u32,
    /// Goal by goal.
    pub findings: Vec<Finding>,
    /// Messages below about this size are limited by their number, larger ones by their bytes.
    pub crossing: Option<u64>,
    /// Settings that the device or the server refused.
    pub refused: Vec<String>,
}

impl Finding {
    /// How many times better than at the start.
    pub fn gain(&self) -> f64 {
        let (better, worse) = if self.goal == Goal::Latency {
            (self.start, self.best)
        } else {
            (self.best, self.start)
        };
        if worse > 0.0 { better / worse } else { 1.0 }
    }

    fn figure(&self, style: Style) -> Figure {
        match self.goal {
            Goal::Latency => style.time(self.best),
            Goal::Rate => style.rate(self.best),
            Goal::Bandwidth => style.bandwidth(self.best),
        }
    }
}

impl Advice {
    /// For people.
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
                "{name}, messages of {}: {}, {}\n    limit: {}\n    {}\n",
                if finding.size == 1 {
                    "1 byte".to_owned()
                } else {
                    Size(finding.size).to_string()
                },
                finding.figure(style),
                if finding.gain() < 1.01 {
                    "with the settings at the start".to_owned()
                } else {
                    format!(
                        "{:.2} times as good as with the settings at the start",
                        finding.gain()
                    )
                },
                finding.why,
                finding.command,
            );
        }
        if let Some(crossing) = self.crossing {
            let _ = writeln!(
                out,
                "Messages smaller than about {} are limited by their number, larger ones by their bytes.",
                Size(crossing)
            );
        }
        for refused in &self.refused {
            let _ = writeln!(out, "Not tried: {refused}");
        }
        out
    }
}
