//! The lines with the counters of the ports.

use measure::stats::SideStats;

use super::Format;
use super::block::Block;
use crate::record::{DeviceResult, Measured};
use crate::warning::{cause, is_cause};

impl Format {
    /// Adds a line for each counter that increased: with `-vs` for those that show a cause, if the
    /// test has one, with `-vvs` for all of them. Ends that share a port have one line.
    pub(super) fn counters(self, m: &Measured, block: &mut Block) {
        let has_cause = m.warnings.iter().any(is_cause);
        if self.verbosity.stat == 0 || (self.verbosity.stat == 1 && !has_cause) {
            return;
        }
        if m.devices.is_empty() {
            self.counters_of_device(m, "", block);
        }
        for DeviceResult {
            device, measured, ..
        } in &m.devices
        {
            self.counters_of_device(measured, &format!("{device}_"), block);
        }
    }

    /// Adds the lines of one device. Their names begin with `prefix`.
    fn counters_of_device(self, m: &Measured, prefix: &str, block: &mut Block) {
        let ends: &[(&str, &SideStats)] = if m.has_one_port() {
            &[("", &m.local_stats)]
        } else {
            &[("loc_", &m.local_stats), ("rem_", &m.remote_stats)]
        };
        let all = self.verbosity.stat >= 2;
        for (end, side) in ends {
            let Some(changes) = &side.port_counters else {
                continue;
            };
            for (counter, by) in &changes.increased {
                if all || cause::shows_cause(counter) {
                    let name = format!("{prefix}{end}{}", cause::short_name(counter));
                    block.figure(name, self.style.count(*by));
                }
            }
            if all && !changes.unknown.is_empty() {
                let unknown = changes.unknown.join(", ");
                block.text(format!("{prefix}{end}unknown_counters"), unknown);
            }
        }
    }
}
