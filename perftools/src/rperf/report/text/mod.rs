//! Text output in qperf's format: a line with the name of the test, then lines of the form
//! `NAME  =  VALUE UNIT`, indented by four spaces and aligned.
//!
//! Results that qperf does not print (percentiles, the path, the CPU time of the processes) follow
//! in a block of their own, so that they do not change the alignment of qperf's lines.

mod block;
mod extra;
mod qperf;

#[cfg(test)]
pub(crate) mod tests;

use crate::common::units::Style;
use crate::rperf::args::options::Options;
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::record::{Outcome, Record};
use block::Block;

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
    /// Selection of lines.
    pub verbosity: Verbosity,
    /// Use the prefixes `loc` and `rem` instead of `send` and `recv`.
    pub unify_nodes: bool,
}

impl Format {
    /// Creates the format from the options.
    pub fn new(o: &Options) -> Self {
        let level = |one: bool, two: bool| {
            if two || o.verbose_more {
                2
            } else {
                u8::from(one || o.verbose)
            }
        };
        Self {
            style: Style {
                precision: o.precision.unwrap_or(3),
                unify: o.unify_units,
                bits: o.bits,
            },
            verbosity: Verbosity {
                conf: level(o.verbose_conf, o.verbose_more_conf),
                stat: level(o.verbose_stat, o.verbose_more_stat),
                time: level(o.verbose_time, o.verbose_more_time),
                used: level(o.verbose_used, o.verbose_more_used),
            },
            unify_nodes: o.unify_nodes,
        }
    }

    /// Formats a record, starting with the name of its test.
    pub fn render(self, record: &Record) -> String {
        format!("{}:\n{}", record.test.name(), self.figures(record))
    }

    /// Formats the results of a record without the name of its test.
    pub fn figures(self, record: &Record) -> String {
        let mut out = String::new();
        match &record.outcome {
            Outcome::Quit | Outcome::Failed { .. } => {}
            Outcome::Conf { local, remote } => conf(local, remote).print(&mut out),
            Outcome::Measured(m) => {
                self.qperf_lines(m).print(&mut out);
                self.extra_lines(m).print(&mut out);
                let mut warnings = Block::default();
                for dip in &m.dips {
                    warnings.text("noticed", dip.to_string());
                }
                for warning in &m.warnings {
                    warnings.text("warning", warning.text.clone());
                }
                warnings.print(&mut out);
            }
        }
        out
    }
}

fn conf(local: &HostConf, remote: &HostConf) -> Block {
    let mut b = Block::default();
    for (who, conf) in [("loc", local), ("rem", remote)] {
        for (name, value) in [
            ("node", &conf.node),
            ("cpu", &conf.cpu),
            ("os", &conf.os),
            ("rperf", &conf.rperf),
        ] {
            b.text(format!("{who}_{name}"), value.clone());
        }
    }
    b
}
