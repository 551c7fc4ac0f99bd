//! Text output in qperf's format: a line with the name of the test, then aligned lines of the form
//! `NAME  =  VALUE UNIT`, indented by four spaces.
//!
//! Results that qperf does not print (percentiles, the path, the CPU time of the processes) follow
//! the lines of qperf, in the same columns. Without `-v`, each condition that distorts a result has
//! one line, without its remedy.

mod block;
mod counters;
mod extra;
mod qperf;

#[cfg(test)]
pub(crate) mod tests;

use base::units::Style;
use host::host_conf::HostConf;

use crate::record::{Outcome, Record};
use crate::warning::{WarningKind, explains_loss, is_cause};
use block::Block;
pub use block::wrap;

/// Verbosity of each category of lines, from 0 to 2. For example, `-vs` sets `stat` to 1 and `-vvs`
/// sets it to 2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbosity {
    /// Configuration, set by `-vc`.
    pub conf: u8,
    /// Statistics, set by `-vs`.
    pub stat: u8,
    /// Times, set by `-vt`.
    pub time: u8,
    /// Parameters, set by `-vu`.
    pub used: u8,
}

/// Format of the text output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Format of values.
    pub style: Style,
    /// Verbosity of each category of lines.
    pub verbosity: Verbosity,
}

impl Format {
    /// Formats a record, starting with the name of its test. A failed test has no text, because its
    /// error is printed separately.
    pub fn render(self, record: &Record) -> String {
        if matches!(record.outcome, Outcome::Failed { .. }) {
            return String::new();
        }
        format!("{}:\n{}", record.test.name(), self.figures(record))
    }

    /// Formats the results of a record without the name of its test.
    pub fn figures(self, record: &Record) -> String {
        let mut out = String::new();
        match &record.outcome {
            Outcome::Quit | Outcome::Failed { .. } => {}
            Outcome::Conf { local, remote } => conf(local, remote).print(&mut out),
            Outcome::Measured(m) => {
                let mut block = self.qperf_lines(m);
                block.append(self.extra_lines(m));
                for dip in &m.dips {
                    block.text("noticed", dip.to_string());
                }
                let terse = self.verbosity == Verbosity::default();
                let is_explained = m.warnings.iter().any(explains_loss);
                for warning in &m.warnings {
                    // The figure and the cause are shown already.
                    if terse && is_explained && warning.kind == WarningKind::Lost {
                        continue;
                    }
                    let name = if is_cause(warning) {
                        "cause"
                    } else {
                        "warning"
                    };
                    let text = if terse {
                        warning.text.clone()
                    } else {
                        warning.to_string()
                    };
                    block.text(name, text);
                }
                block.print(&mut out);
            }
        }
        out
    }
}

fn conf(local: &HostConf, remote: &HostConf) -> Block {
    let mut block = Block::default();
    for (prefix, conf) in [("loc", local), ("rem", remote)] {
        for (name, value) in [
            ("node", &conf.node),
            ("cpu", &conf.cpu),
            ("os", &conf.os),
            ("rperf", &conf.rperf),
        ] {
            block.text(format!("{prefix}_{name}"), value.clone());
        }
    }
    block
}
