//! The lines with the counters of the ports.

use measure::stats::SideStats;

use super::Format;
use super::block::Block;
use crate::record::{DeviceResult, Measured};
use crate::warning::cause;

impl Format {
    /// Adds a line for each end with the counters that increased: those that show a cause, or all
    /// of them with `-vs`. Ends that share a port have one line.
    pub(super) fn counters(self, m: &Measured, block: &mut Block) {
        if m.devices.is_empty() {
            self.counters_of_device(m, "", block);
        }
        for DeviceResult {
            device, measured, ..
        } in &m.devices
        {
            self.counters_of_device(measured, &format!("{device}: "), block);
        }
    }

    /// Adds the lines of one device. Their values begin with `prefix`.
    fn counters_of_device(self, m: &Measured, prefix: &str, block: &mut Block) {
        let ends: &[(&str, &SideStats)] = if m.has_one_port() {
            &[("counters", &m.local_stats)]
        } else {
            &[
                ("loc_counters", &m.local_stats),
                ("rem_counters", &m.remote_stats),
            ]
        };
        for (name, side) in ends {
            let Some(changes) = &side.port_counters else {
                continue;
            };
            let shown = changes
                .increased
                .iter()
                .filter(|(counter, _)| self.verbosity.stat >= 1 || cause::shows_cause(counter));
            let mut texts: Vec<String> = shown
                .map(|(counter, by)| format!("{} {by}", cause::short_name(counter)))
                .collect();
            if self.verbosity.stat >= 1 && !changes.unknown.is_empty() {
                texts.push(format!("unknown: {}", changes.unknown.join(", ")));
            }
            if !texts.is_empty() {
                block.text(*name, format!("{prefix}{}", texts.join(", ")));
            }
        }
    }
}
