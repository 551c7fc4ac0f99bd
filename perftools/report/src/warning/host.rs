//! Warnings about the configuration of a host.

use host::conditions::Conditions;

use super::{Warning, WarningKind};

/// Returns the warnings about the conditions of a host.
pub fn host(conditions: &Conditions) -> Vec<Warning> {
    let mut all = Vec::new();
    if cfg!(debug_assertions) {
        let text = "rperf was built without optimization";
        let warning = Warning::new(WarningKind::DebugBuild, text);
        all.push(warning.with_help("build it with `cargo build --release`"));
    }
    all.extend(cpu_scaling(&conditions.governors));
    all.extend(swap_use(conditions.swapped_kib));
    all
}

/// Returns a warning if any governor is not `performance`.
fn cpu_scaling(governors: &[String]) -> Option<Warning> {
    let others: Vec<&str> = governors
        .iter()
        .map(String::as_str)
        .filter(|g| *g != "performance")
        .collect();
    let text = format!(
        "the processors use the frequency governor {}",
        others.join(", ")
    );
    let help = "run `cpupower frequency-set -g performance`";
    (!others.is_empty()).then(|| Warning::new(WarningKind::CpuScaling, text).with_help(help))
}

/// Returns a warning if more than 1 MiB is swapped out.
fn swap_use(used: u64) -> Option<Warning> {
    let text = format!(
        "{} MiB of memory are swapped out, and page faults increase the latency",
        used / 1024
    );
    let help = "free memory, then run `swapoff -a`";
    (used > 1024).then(|| Warning::new(WarningKind::Swap, text).with_help(help))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_governors_than_performance_are_listed() {
        let governors = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            (cpu_scaling(&governors(&["performance"])), cpu_scaling(&[])),
            (None, None)
        );
        let text = cpu_scaling(&governors(&["performance", "powersave"]))
            .unwrap()
            .text;
        assert!(text.contains("governor powersave"), "{text}");
    }

    #[test]
    fn swap_in_use_is_a_warning() {
        assert_eq!(swap_use(100), None);
        assert!(swap_use(20480).unwrap().text.starts_with("20 MiB"));
    }
}
