//! qperf's text: `test:`, then lines of four spaces, padded name, `  =  `, right-aligned figure, unit.
//!
//! What qperf has not (percentiles, the path taken, this process's own processor time) follows in a block of its own, so
//! that qperf's lines stay as they are.

use std::fmt::Write;
use std::time::Duration;

use super::record::{HostConf, Measured, Outcome, Record};
use crate::args::options::{Cm, Options, Wait};
use crate::config::Limit;
use crate::stats::SideStats;
use crate::units::{Figure, Style};

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
        let level = |one: bool, two: bool| if two || o.verbose_more { 2 } else { u8::from(one || o.verbose) };
        Self {
            style: Style { precision: o.precision.unwrap_or(3), unify: o.unify_units, bits: o.bits },
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
        let mut out = format!("{}:\n", record.test.name());
        match &record.outcome {
            Outcome::Quit | Outcome::Failed { .. } => {}
            Outcome::Conf { local, remote } => conf(local, remote).print(&mut out),
            Outcome::Measured(m) => {
                self.qperf_lines(m).print(&mut out);
                self.own_lines(m).print(&mut out);
                let mut warnings = Block::default();
                for warning in &m.warnings {
                    warnings.text("warning", warning.text.clone());
                }
                warnings.print(&mut out);
            }
        }
        out
    }

    fn qperf_lines(self, m: &Measured) -> Block {
        let (style, verbosity) = (self.style, self.verbosity);
        let mut block = Block::default();
        if let Some(latency) = m.summary.latency {
            block.figure("latency", style.time(latency));
        }
        let rate = m.plan.is_some_and(|plan| plan.verb.is_atomic() && !plan.is_latency());
        match (m.summary.bandwidth.filter(|_| !rate), m.summary.send_bandwidth) {
            (Some(bandwidth), Some(sent)) => {
                block.figure("send_bw", style.bandwidth(sent));
                block.figure("recv_bw", style.bandwidth(bandwidth));
            }
            (Some(bandwidth), None) => block.figure("bw", style.bandwidth(bandwidth)),
            _ => {}
        }
        if (rate || verbosity.stat >= 1) && m.summary.msg_rate > 0.0 {
            block.figure("msg_rate", style.rate(m.summary.msg_rate));
        }
        self.parameters(m, &mut block);
        if verbosity.time >= 1 {
            for (name, cost) in [("send_cost", m.summary.send_cost), ("recv_cost", m.summary.recv_cost)] {
                if let Some(cost) = cost.filter(|c| *c > 0.0) {
                    block.figure(name, style.cost(cost));
                }
            }
        }
        let (local, remote) = (&m.local_stats, &m.remote_stats);
        let one_way = |from: &SideStats, to: &SideStats| {
            from.sent.bytes > 0 && from.received.bytes == 0 && to.sent.bytes == 0 && to.received.bytes > 0
        };
        let (first, second) = if self.unify_nodes || !(one_way(local, remote) || one_way(remote, local)) {
            (("loc", local), ("rem", remote))
        } else if one_way(local, remote) {
            (("send", local), ("recv", remote))
        } else {
            (("send", remote), ("recv", local))
        };
        for (name, side) in [first, second] {
            self.side(name, side, &mut block);
        }
        block
    }

    /// The parameters in use: at `-vu` those that differ from the default, at `-vvu` all.
    fn parameters(self, m: &Measured, b: &mut Block) {
        let (s, level, spec) = (&self.style, self.verbosity.used, &m.spec);
        if level == 0 {
            return;
        }
        let all = level >= 2;
        if let Some(id) = &spec.client.id {
            b.text("id", id.to_string());
        }
        if all || spec.msg_size != spec.test.default_size() {
            b.figure("msg_size", s.size(spec.msg_size));
        }
        if let Some(mtu) = m.local.mtu.filter(|_| all || spec.mtu.is_some()) {
            b.figure("mtu_size", s.size(u64::from(mtu)));
        }
        match spec.limit {
            Limit::Messages(n) => b.figure("no_msgs", s.count(n)),
            Limit::Time(t) if all || t != Duration::from_secs(2) => b.figure("time", s.time(t.as_secs_f64() * 1e9)),
            Limit::Time(_) => {}
        }
        for (name, wait) in [("loc_poll_mode", spec.client.wait), ("rem_poll_mode", spec.server.wait)] {
            if wait == Wait::Poll {
                b.figure(name, s.count(1));
            }
        }
        if all || spec.client.timeout != Duration::from_secs(5) {
            b.figure("timeout", s.time(spec.client.timeout.as_secs_f64() * 1e9));
        }
        if spec.use_cm == Cm::On || (all && m.local.cm) {
            b.figure("use_cm", s.count(1));
        }
    }

    fn side(self, who: &str, side: &SideStats, b: &mut Block) {
        let (s, v) = (&self.style, &self.verbosity);
        #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
        let nanos = side.nanos as f64;
        let host = &side.cpu.host;
        let shares = [
            ("cpus_user", host.user),
            ("cpus_intr", host.intr),
            ("cpus_kernel", host.kernel),
            ("cpus_iowait", host.iowait),
        ];
        let share = |secs: f64| secs * 1e9 / nanos;
        if v.time >= 1 && host.busy() > 0.0 {
            b.figure(format!("{who}_cpus_used"), s.cpus(share(host.busy())));
        }
        if v.time >= 2 {
            for (name, secs) in shares.into_iter().filter(|c| c.1 > 0.0) {
                b.figure(format!("{who}_{name}"), s.cpus(share(secs)));
            }
            b.figure(format!("{who}_real_time"), s.time(nanos));
            if host.busy() > 0.0 {
                b.figure(format!("{who}_cpu_time"), s.time(host.busy() * 1e9));
            }
        }
        if v.stat >= 2 {
            let (sent, received) = match who {
                "send" | "recv" => ("", ""),
                _ => ("_send", "_recv"),
            };
            let directions = [(sent, side.sent), (received, side.received)];
            for (way, count) in directions.into_iter().filter(|d| d.1.bytes > 0) {
                b.figure(format!("{who}{way}_bytes"), s.size(count.bytes));
            }
            for (way, count) in directions.into_iter().filter(|d| d.1.msgs > 0) {
                b.figure(format!("{who}{way}_msgs"), s.count(count.msgs));
            }
            b.figure(format!("{who}_max_cqe"), s.count(u64::from(side.max_cqe)));
        }
    }

    /// What a gigabyte and a message cost this process and the server's.
    #[allow(clippy::cast_precision_loss)] // Counts below 2^53.
    fn costs(self, m: &Measured, block: &mut Block) {
        let sides = [&m.local_stats, &m.remote_stats];
        let most = |count: fn(&SideStats) -> u64| sides.into_iter().map(count).max().unwrap_or(0).max(1) as f64;
        let bytes = most(|s| s.sent.bytes + s.received.bytes);
        let msgs = most(|s| s.sent.msgs + s.received.msgs);
        for (who, side) in ["loc", "rem"].into_iter().zip(sides) {
            block.figure(format!("{who}_cpu_cost"), self.style.cost(side.cpu.process * 1e9 / bytes));
            block.figure(format!("{who}_cpu_msg"), self.style.time(side.cpu.process * 1e9 / msgs));
        }
    }

    /// What qperf has not.
    fn own_lines(self, m: &Measured) -> Block {
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
            for (name, side) in [("loc_process", &m.local_stats), ("rem_process", &m.remote_stats)] {
                b.figure(name, s.time(side.cpu.process * 1e9));
            }
        }
        if m.spec.test.may_lose() {
            b.figure("lost", s.count(m.local_stats.lost + m.remote_stats.lost));
        }
        let verified = m.local_stats.verified + m.remote_stats.verified;
        if m.spec.verify {
            b.figure("verified", s.size(verified));
        }
        if v.used >= 2 {
            b.figure("depth", s.count(u64::from(m.depth)));
        }
        b.text("via", m.local.to_string());
        if v.conf >= 1
            || (m.local.device.as_str(), m.local.address.as_str())
                != (m.remote.device.as_str(), m.remote.address.as_str())
        {
            b.text("peer", m.remote.to_string());
        }
        b
    }
}

fn conf(local: &HostConf, remote: &HostConf) -> Block {
    let mut b = Block::default();
    for (who, conf) in [("loc", local), ("rem", remote)] {
        for (name, value) in [("node", &conf.node), ("cpu", &conf.cpu), ("os", &conf.os), ("rperf", &conf.rperf)] {
            b.text(format!("{who}_{name}"), value.clone());
        }
    }
    b
}

/// Lines that are aligned with each other.
#[derive(Default)]
struct Block {
    lines: Vec<(String, Value)>,
}

enum Value {
    Figure(Figure),
    Text(String),
}

impl Block {
    fn figure(&mut self, name: impl Into<String>, figure: Figure) {
        self.lines.push((name.into(), Value::Figure(figure)));
    }

    fn text(&mut self, name: impl Into<String>, text: String) {
        self.lines.push((name.into(), Value::Text(text)));
    }

    fn print(&self, out: &mut String) {
        let names = self.lines.iter().map(|l| l.0.len()).max().unwrap_or(0);
        let digits = |value: &Value| match value {
            Value::Figure(f) => f.digits.len(),
            Value::Text(_) => 0,
        };
        let width = self.lines.iter().map(|l| digits(&l.1)).max().unwrap_or(0);
        for (name, value) in &self.lines {
            let done = match value {
                Value::Text(text) => writeln!(out, "    {name:<names$}  =  {text}"),
                Value::Figure(Figure { digits, unit, bytes: None }) => {
                    writeln!(out, "    {name:<names$}  =  {digits:>width$} {unit}")
                }
                Value::Figure(Figure { digits, unit, bytes: Some(bytes) }) => {
                    writeln!(out, "    {name:<names$}  =  {digits:>width$} {unit} ({bytes})")
                }
            };
            debug_assert!(done.is_ok(), "a String takes all");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::Spec;
    use crate::report::record::Via;
    use crate::stats::Count;
    use crate::stats::cpu::{CpuUse, Host};
    use crate::stats::histogram::Latencies;
    use crate::stats::summary::{Meaning, Summary};
    use crate::test::Test;
    use clap::Parser;

    fn via(cm: bool) -> Via {
        Via {
            device: "rxe0".into(),
            port: 1,
            link: "RoCE v2".into(),
            gid_index: Some(1),
            address: "::ffff:10.99.0.1".into(),
            cm,
            mtu: Some(4096),
            wait: Wait::Adaptive,
        }
    }

    fn stats(sent: u64, received: u64, size: u64) -> SideStats {
        SideStats {
            sent: Count { msgs: sent, bytes: sent * size },
            received: Count { msgs: received, bytes: received * size },
            nanos: 2_000_000_000,
            max_cqe: 32,
            cpu: CpuUse { thread: 0.5, process: 0.6, host: Host { kernel: 2.0, ..Host::default() }, cpus: 1 },
            verified: 0,
            lost: 0,
        }
    }

    fn record(test: Test, options: &[&str], local: SideStats, remote: SideStats, latency: Option<Latencies>) -> Record {
        let options = Options::try_parse_from(std::iter::once("rperf").chain(options.iter().copied())).unwrap();
        let spec = Spec::new(test, &options).unwrap();
        let cm = spec.use_cm == Cm::On;
        Record {
            test,
            host: Some("node1".into()),
            outcome: Outcome::Measured(Box::new(Measured {
                warnings: Vec::new(),
                spec,
                depth: 128,
                plan: test.plan(),
                local: via(cm),
                remote: via(cm),
                summary: Summary::new(Meaning::of(test, test.plan()), &local, &remote),
                latency: latency.and_then(|l| l.percentiles()),
                local_stats: local,
                remote_stats: remote,
            })),
        }
    }

    pub(crate) fn one_way() -> Record {
        record(Test::RcBw, &["--use-cm=on"], stats(11_344, 0, 65_536), stats(0, 10_735, 65_536), None)
    }

    pub(crate) fn latency() -> Record {
        let mut l = Latencies::new();
        (1..=10_000).for_each(|n| l.record(100_000 + n * 10));
        record(Test::RcLat, &[], stats(6000, 6000, 1), stats(6000, 6000, 1), Some(l))
    }

    fn text(record: &Record, options: &[&str]) -> String {
        let options = Options::try_parse_from(std::iter::once("rperf").chain(options.iter().copied())).unwrap();
        Format::new(&options).render(record)
    }

    #[test]
    fn plain() {
        let both = record(Test::RcBiBw, &[], stats(9000, 9000, 65_536), stats(9000, 9000, 65_536), None);
        insta::assert_snapshot!(text(&one_way(), &[]) + &text(&latency(), &[]) + &text(&both, &[]));
    }

    #[test]
    fn verbose() {
        insta::assert_snapshot!(text(&one_way(), &["--verbose"]) + &text(&latency(), &["--verbose"]));
    }

    #[test]
    fn very_verbose() {
        insta::assert_snapshot!(text(&one_way(), &["--verbose-more"]) + &text(&latency(), &["--verbose-more"]));
    }

    #[test]
    fn unified() {
        let options = ["--verbose-more-stat", "--unify-nodes", "--unify-units", "--precision=5", "--bits"];
        insta::assert_snapshot!(text(&one_way(), &options));
    }

    #[test]
    fn configuration() {
        let host =
            HostConf { node: "a".into(), cpu: "2 × CPU".into(), os: "Linux 6.12".into(), rperf: "0.1.0".into() };
        let record =
            Record { test: Test::Conf, host: None, outcome: Outcome::Conf { local: host.clone(), remote: host } };
        insta::assert_snapshot!(text(&record, &[]));
    }
}
