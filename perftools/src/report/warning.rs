//! What makes figures worth less than they seem, as values.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::args::options::Wait;
use crate::config::Spec;
use crate::stats::SideStats;

/// Something that spoils figures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Warning {
    /// Which, for programs: `debug_build`, `cpu_scaling`, `oversubscribed`, `small_mtu`, `swap`, `lost`.
    pub kind: String,
    /// What, and what to do, for people.
    pub text: String,
}

impl Warning {
    fn new(kind: &str, text: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), text: text.into() }
    }
}

/// What this end sees after a test; `mtu` is the path's, where this end knows it.
pub fn gather(spec: &Spec, mtu: Option<u32>, local: &SideStats, remote: &SideStats) -> Vec<Warning> {
    let mut all = Vec::new();
    if cfg!(debug_assertions) {
        all.push(Warning::new("debug_build", "this rperf was built without optimisation: build it with --release"));
    }
    let governor = fs::read_to_string("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").unwrap_or_default();
    all.extend(scaling(governor.trim()));
    all.extend(oversubscribed(spec, local));
    all.extend(small_mtu(mtu));
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    all.extend(swapped(&swaps));
    all.extend(lost(local.lost + remote.lost, local.sent.msgs + remote.sent.msgs));
    all
}

fn scaling(governor: &str) -> Option<Warning> {
    let text =
        format!("the processors' frequency follows the governor {governor}: `cpupower frequency-set -g performance`");
    (!governor.is_empty() && governor != "performance").then(|| Warning::new("cpu_scaling", text))
}

/// An end that polls without pause, where another has to run on the same processor.
fn oversubscribed(spec: &Spec, local: &SideStats) -> Option<Warning> {
    let polls = spec.client.wait == Wait::Poll || spec.server.wait == Wait::Poll;
    let text = "both ends may share one processor, and one polls without pause: leave --wait poll (-cp1) away";
    (polls && local.cpu.cpus == 1).then(|| Warning::new("oversubscribed", text))
}

fn small_mtu(mtu: Option<u32>) -> Option<Warning> {
    let mtu = mtu.filter(|mtu| *mtu < 4096)?;
    Some(Warning::new(
        "small_mtu",
        format!("the path MTU is {mtu}: packets of 4096 bytes cost less (`ribinfo check mtu` says what bounds it)"),
    ))
}

/// Lines of `/proc/swaps`: the third number is how much is in use.
fn swapped(swaps: &str) -> Option<Warning> {
    let used: u64 = swaps.lines().skip(1).filter_map(|l| l.split_whitespace().nth(3)?.parse::<u64>().ok()).sum();
    let text = format!("{} MiB of this host's memory are swapped out: what pages stall, shows as latency", used / 1024);
    (used > 1024).then(|| Warning::new("swap", text))
}

fn lost(lost: u64, sent: u64) -> Option<Warning> {
    (lost > 0).then(|| Warning::new("lost", format!("{lost} of {sent} messages never arrived")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_says_what_is_wrong() {
        assert_eq!((scaling("performance"), scaling("")), (None, None));
        assert!(scaling("powersave").unwrap().text.contains("powersave"));
        let head = "Filename Type Size Used Priority\n";
        assert_eq!(swapped(&format!("{head}/swap file 1000000 100 -2\n")), None);
        assert!(swapped(&format!("{head}/swap file 9000000 20480 -2\n")).unwrap().text.starts_with("20 MiB"));
        assert_eq!(lost(0, 5), None);
        assert_eq!(lost(2, 5).unwrap().kind, "lost");
    }
}
