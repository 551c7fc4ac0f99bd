//! qperf's text: `test:`, then lines of four spaces, padded name, `  =  `, right-aligned figure,
//! unit.
//!
//! What qperf has not (percentiles, the path taken, this process's own processor time) follows in a
//! block of its own, so that qperf's lines stay as they are.

mod block;
mod own;
mod qperf;

#[cfg(test)]
pub(crate) mod tests;

use crate::common::units::Style;
use crate::rperf::args::options::Options;
use crate::rperf::report::host_conf::HostConf;
use crate::rperf::report::record::{Outcome, Record};
use block::Block;

/// How much is printed: 0, 1 or 2 of each kind, as `-vs` and `-vvs` say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verbosity {
    /// Configuration.
    pub conf: u8,
    /// Statistics.
    pub stat: u8,
    /// Times.
    pub time: u8,
    /// Parameters.
    pub used: u8,
}

/// What the options for the whole run say about text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Format {
    /// Figures.
    pub style: Style,
    /// Lines.
    pub verbosity: Verbosity,
    /// Say local and remote instead of send and receive.
    pub unify_nodes: bool,
}

impl Format {
    /// The format that these options ask for.
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

    /// The text of one record, its name first.
    pub fn render(self, record: &Record) -> String {
        format!("{}:\n{}", record.test.name(), self.figures(record))
    }

    /// The same without its name.
    pub fn figures(self, record: &Record) -> String {
        let mut out = String::new();
        match &record.outcome {
            Outcome::Quit | Outcome::Failed { .. } => {}
            Outcome::Conf { local, remote } => conf(local, remote).print(&mut out),
            Outcome::Measured(m) => {
                self.qperf_lines(m).print(&mut out);
                self.own_lines(m).print(&mut out);
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
