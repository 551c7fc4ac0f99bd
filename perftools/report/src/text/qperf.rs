//! Lines that qperf prints too, in qperf's format.

use std::time::Duration;

use measure::spec::modes::{Cm, Wait};
use measure::spec::{Limit, Spec};
use measure::stats::SideStats;

use super::Format;
use super::block::Block;
use crate::parameters::of_spec;
use crate::record::Measured;

impl Format {
    /// Returns the block of lines that qperf prints too.
    pub(super) fn qperf_lines(self, m: &Measured) -> Block {
        let (style, verbosity) = (self.style, self.verbosity);
        let mut block = Block::default();
        if let Some(latency) = m.summary.latency {
            block.figure("latency", style.time(latency));
        }
        let rate = m.summary.latency.is_none() && !m.is_bandwidth_test();
        match (
            m.summary.bandwidth.filter(|_| !rate),
            m.summary.send_bandwidth,
        ) {
            (Some(bandwidth), Some(sent)) => {
                block.figure("send_bw", style.bandwidth(sent));
                block.figure("recv_bw", style.bandwidth(bandwidth));
            }
            (Some(bandwidth), None) => block.figure("bw", style.bandwidth(bandwidth)),
            _ => {}
        }
        for (name, bandwidth) in m.directions() {
            block.figure(name, style.bandwidth(bandwidth));
        }
        if (rate || verbosity.stat >= 1) && m.summary.msg_rate > 0.0 {
            block.figure("msg_rate", style.rate(m.summary.msg_rate));
        }
        self.parameters(m, &mut block);
        if verbosity.time >= 1 {
            for (name, cost) in [
                ("send_cost", m.summary.send_cost),
                ("recv_cost", m.summary.recv_cost),
            ] {
                if let Some(cost) = cost.filter(|c| *c > 0.0) {
                    block.figure(name, style.cost(cost));
                }
            }
        }
        let (local, remote) = (&m.local_stats, &m.remote_stats);
        let one_way = |from: &SideStats, to: &SideStats| {
            from.sent.bytes > 0
                && from.received.bytes == 0
                && to.sent.bytes == 0
                && to.received.bytes > 0
        };
        let (first, second) = if one_way(local, remote) {
            (("send", local), ("recv", remote))
        } else if one_way(remote, local) {
            (("send", remote), ("recv", local))
        } else {
            (("loc", local), ("rem", remote))
        };
        for (name, side) in [first, second] {
            self.side(name, side, &mut block);
        }
        block
    }

    /// Adds the parameters of the test: with `-vu` those that differ from the default, with `-vvu`
    /// all of them.
    fn parameters(self, m: &Measured, b: &mut Block) {
        let (s, level, spec) = (&self.style, self.verbosity.used, &m.spec);
        if level == 0 {
            return;
        }
        let all = level >= 2;
        if let Some(id) = &spec.client.id {
            b.text("id", id.to_string());
        }
        if let (Some(id), false) = (&spec.server.id, spec.server.id == spec.client.id) {
            b.text("rem_id", id.to_string());
        }
        if all || spec.msg_size != spec.test.default_size() {
            b.figure("msg_size", s.size(spec.msg_size));
        }
        if let Some(mtu) = m.local.mtu.filter(|_| all || spec.mtu.is_some()) {
            b.figure("mtu_size", s.size(u64::from(mtu)));
        }
        match spec.limit {
            Limit::Messages(n) => b.figure("no_msgs", s.count(n)),
            Limit::Time(t) if all || t != Duration::from_secs(2) => {
                b.figure("time", s.time(t.as_secs_f64() * 1e9));
            }
            Limit::Time(_) => {}
        }
        for (name, wait) in [
            ("loc_poll_mode", spec.client.wait),
            ("rem_poll_mode", spec.server.wait),
        ] {
            if wait == Wait::Poll {
                b.figure(name, s.count(1));
            }
        }
        if all || spec.client.timeout != Duration::from_secs(5) {
            b.figure("timeout", s.time(spec.client.timeout.as_secs_f64() * 1e9));
        }
        if spec.use_cm != Cm::Auto || (all && m.local.cm) {
            b.figure("use_cm", s.count(u64::from(spec.use_cm != Cm::Off)));
        }
        self.other_parameters(m, b);
    }

    /// Adds the parameters that were set and have no line above, with the names of the record.
    fn other_parameters(self, m: &Measured, b: &mut Block) {
        const SIZES: &[&str] = &["inline", "loc_sock_buf_size", "rem_sock_buf_size"];
        const SHOWN: &[&str] = &[
            "client timeout",
            "depth",
            "messages",
            "mtu",
            "time",
            "use cm",
        ];
        let defaults = of_spec(&Spec::new(m.spec.test));
        for (name, value) in of_spec(&m.spec) {
            let is_default = defaults.get(&name) == Some(&value);
            // The record has all settings of sockets if one is set. `poll` has a line of qperf.
            let is_unset = name.starts_with("sockets ") && value == "0";
            if is_default || is_unset || value == "poll" || SHOWN.contains(&&*name) {
                continue;
            }
            let line = name
                .replace("sockets ", "")
                .replace("buffers", "sock_buf_size");
            let line = line.replace("client ", "loc_").replace("server ", "rem_");
            let line = line.replace(' ', "_");
            let seconds = value.strip_suffix(" s").map(str::parse::<f64>);
            #[allow(clippy::cast_precision_loss)] // Only shown.
            match (value.parse::<u64>(), seconds) {
                (_, Some(Ok(seconds))) => b.figure(line, self.style.time(seconds * 1e9)),
                (Ok(rate), _) if name == "rate limit" => {
                    b.figure(line, self.style.bandwidth(rate as f64));
                }
                (Ok(n), _) if SIZES.contains(&&*line) => b.figure(line, self.style.size(n)),
                (Ok(n), _) => b.figure(line, self.style.count(n)),
                _ => b.text(line, value),
            }
        }
    }

    /// Adds the CPU use and the counters of one end.
    fn side(self, prefix: &str, side: &SideStats, b: &mut Block) {
        let (s, v) = (&self.style, &self.verbosity);
        #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
        let nanos = side.nanos as f64;
        let host = side.cpu.host.unwrap_or_default();
        let shares = [
            ("cpus_user", host.user),
            ("cpus_intr", host.intr),
            ("cpus_kernel", host.kernel),
            ("cpus_iowait", host.iowait),
        ];
        let share = |secs: f64| secs * 1e9 / nanos;
        if v.time >= 1 && host.busy() > 0.0 {
            b.figure(format!("{prefix}_cpus_used"), s.cpus(share(host.busy())));
        }
        if v.time >= 2 {
            for (name, secs) in shares.into_iter().filter(|c| c.1 > 0.0) {
                b.figure(format!("{prefix}_{name}"), s.cpus(share(secs)));
            }
            b.figure(format!("{prefix}_real_time"), s.time(nanos));
            if host.busy() > 0.0 {
                b.figure(format!("{prefix}_cpu_time"), s.time(host.busy() * 1e9));
            }
        }
        if v.stat >= 2 {
            let (sent, received) = match prefix {
                "send" | "recv" => ("", ""),
                _ => ("_send", "_recv"),
            };
            let directions = [(sent, side.sent), (received, side.received)];
            for (direction, count) in directions.into_iter().filter(|d| d.1.bytes > 0) {
                b.figure(format!("{prefix}{direction}_bytes"), s.bytes(count.bytes));
            }
            for (direction, count) in directions.into_iter().filter(|d| d.1.msgs > 0) {
                b.figure(format!("{prefix}{direction}_msgs"), s.count(count.msgs));
            }
            b.figure_if_known(
                format!("{prefix}_max_cqe"),
                side.max_cqe.map(|count| s.count(u64::from(count))),
            );
        }
    }
}
