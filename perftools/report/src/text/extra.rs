//! Lines that qperf does not print.

use measure::stats::{SideStats, ThreadStats};

use super::Format;
use super::block::Block;
use crate::devices;
use crate::record::{DeviceResult, Measured};
use crate::warning::explains_loss;

impl Format {
    /// Adds the CPU time of each process per message and, for bandwidth tests, per gigabyte.
    #[allow(clippy::cast_precision_loss)] // Counts below 2^53.
    fn costs(self, m: &Measured, block: &mut Block) {
        let sides = [&m.local_stats, &m.remote_stats];
        let max = |count: fn(&SideStats) -> u64| {
            sides.into_iter().map(count).max().unwrap_or(0).max(1) as f64
        };
        let bytes = max(|s| s.sent.bytes + s.received.bytes);
        let msgs = max(|s| s.sent.msgs + s.received.msgs);
        for (prefix, side) in ["loc", "rem"].into_iter().zip(sides) {
            let process = side.cpu.process;
            if m.is_bandwidth_test() {
                block.figure_if_known(
                    format!("{prefix}_cpu_cost"),
                    process.map(|secs| self.style.cost(secs * 1e9 / bytes)),
                );
            }
            block.figure_if_known(
                format!("{prefix}_cpu_msg"),
                process.map(|secs| self.style.time(secs * 1e9 / msgs)),
            );
        }
    }

    /// Formats the CPU time of each thread and the processors it ran on.
    fn threads(self, side: &SideStats) -> String {
        let describe = |thread: &ThreadStats| {
            let used = self.style.time(thread.cpu * 1e9);
            let on = thread
                .on
                .as_ref()
                .map_or_else(String::new, |on| format!(" on {on}"));
            format!("{used}{on}")
        };
        side.threads
            .iter()
            .map(describe)
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Adds the names of the devices that the lines above are about, and a line for each device.
    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    fn devices(self, m: &Measured, block: &mut Block) {
        let s = &self.style;
        if m.spec.test.is_latency() {
            let slowest = &devices::slowest(&m.devices).device;
            block.text("worst_of", format!("{} (worst: {slowest})", m.local.device));
        } else {
            block.text("sum_of", m.local.device.clone());
        }
        for DeviceResult {
            device,
            measured: m,
            ..
        } in &m.devices
        {
            let mut figures = Vec::new();
            figures.extend(m.summary.latency.map(|nanos| s.time(nanos).to_string()));
            if let Some(p) = &m.latency {
                let named = [("p50", p.p50), ("p99", p.p99), ("max", p.max)];
                figures
                    .extend(named.map(|(name, nanos)| format!("{name} {}", s.time(nanos as f64))));
            }
            if m.is_bandwidth_test() {
                figures.extend(m.summary.bandwidth.map(|bw| s.bandwidth(bw).to_string()));
            }
            if m.summary.latency.is_none() {
                figures.push(s.rate(m.summary.msg_rate).to_string());
            }
            if m.spec.test.may_lose() {
                let lost = m.local_stats.lost.saturating_add(m.remote_stats.lost);
                figures.push(format!("lost {}", s.count(lost)));
            }
            let peer = if m.has_one_port() {
                String::new()
            } else {
                format!(
                    " to {}:{} {}",
                    m.remote.device, m.remote.port, m.remote.address
                )
            };
            block.text(
                device,
                format!("{} via {}{peer}", figures.join(", "), m.local),
            );
        }
    }

    /// Returns the block of lines that qperf does not print.
    pub(super) fn extra_lines(self, m: &Measured) -> Block {
        let (s, v) = (&self.style, &self.verbosity);
        let mut b = Block::default();
        #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
        if let Some(p) = &m.latency {
            let mut line = |name: &str, nanos: u64| b.figure(name, s.time(nanos as f64));
            line("min", p.min);
            line("p50", p.p50);
            if v.stat >= 1 {
                line("p90", p.p90);
            }
            line("p99", p.p99);
            line("p99.9", p.p99_9);
            if v.stat >= 1 {
                line("p99.99", p.p99_99);
            }
            line("max", p.max);
            if v.stat >= 1 {
                b.figure("samples", s.count(p.samples));
            }
        }
        if v.time >= 1 {
            self.costs(m, &mut b);
            for (name, side) in [
                ("loc_process", &m.local_stats),
                ("rem_process", &m.remote_stats),
            ] {
                b.figure_if_known(name, side.cpu.process.map(|secs| s.time(secs * 1e9)));
            }
            for (name, side) in [
                ("loc_threads", &m.local_stats),
                ("rem_threads", &m.remote_stats),
            ] {
                if !side.threads.is_empty() {
                    b.text(name, self.threads(side));
                }
            }
        }
        if m.spec.test.may_lose() {
            b.figure("lost", s.count(m.local_stats.lost + m.remote_stats.lost));
        }
        for (name, side) in [
            ("loc_retransmitted", &m.local_stats),
            ("rem_retransmitted", &m.remote_stats),
        ] {
            let retransmitted = side.retransmitted.filter(|n| *n > 0);
            // The line of a cause has the number.
            if !m.warnings.iter().any(explains_loss) {
                b.figures(name, retransmitted.map(|n| s.count(n)));
            }
        }
        for (name, side) in [
            ("loc_jitter", &m.local_stats),
            ("rem_jitter", &m.remote_stats),
        ] {
            b.figures(name, side.jitter.map(|nanos| s.time(nanos)));
        }
        let duplicates = m.local_stats.duplicates + m.remote_stats.duplicates;
        if duplicates > 0 {
            b.figure("duplicates", s.count(duplicates));
        }
        self.counters(m, &mut b);
        let verified = m.local_stats.verified + m.remote_stats.verified;
        if m.spec.verify {
            b.figure("verified", s.bytes(verified));
        }
        if v.used >= 2 || (v.used == 1 && !m.spec.has_default_depth()) {
            b.figure("depth", s.count(u64::from(m.depth)));
        }
        if m.partial {
            #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
            let time = s.time(m.local_stats.nanos as f64);
            b.text("partial", format!("interrupted after {time}"));
        }
        if !m.devices.is_empty() {
            self.devices(m, &mut b);
            return b;
        }
        b.text("via", m.local.to_string());
        if v.conf >= 1
            || (&m.local.device, &m.local.address, &m.local.memory)
                != (&m.remote.device, &m.remote.address, &m.remote.memory)
        {
            b.text("peer", m.remote.to_string());
        }
        b
    }
}
