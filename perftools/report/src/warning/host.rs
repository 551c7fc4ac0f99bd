//! Warnings about the configuration of a host.

use std::fs;

use super::Warning;

/// Returns the warnings about the configuration of this host.
pub fn host() -> Vec<Warning> {
    let mut all = Vec::new();
    if cfg!(debug_assertions) {
        all.push(Warning::new(
            "debug_build",
            "rperf was built without optimization; help: build it with `cargo build --release`",
        ));
    }
    all.extend(cpu_scaling(&governors()));
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    all.extend(swap_use(&swaps));
    all
}

/// Returns the frequency governors in use, sorted and without duplicates.
fn governors() -> Vec<String> {
    let mut all = Vec::new();
    for cpu in fs::read_dir("/sys/devices/system/cpu")
        .into_iter()
        .flatten()
        .flatten()
    {
        let governor =
            fs::read_to_string(cpu.path().join("cpufreq/scaling_governor")).unwrap_or_default();
        let governor = governor.trim().to_owned();
        if !governor.is_empty() && !all.contains(&governor) {
            all.push(governor);
        }
    }
    all.sort_unstable();
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
        "the processors use the frequency governor {}; help: run `cpupower frequency-set -g performance`",
        others.join(", ")
    );
    (!others.is_empty()).then(|| Warning::new("cpu_scaling", text))
}

/// Returns a warning if more than 1 MiB is swapped out. `swaps` is the text of `/proc/swaps`, whose
/// fourth column is the used size in KiB.
fn swap_use(swaps: &str) -> Option<Warning> {
    let used: u64 = swaps
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().nth(3)?.parse::<u64>().ok())
        .sum();
    let text = format!(
        "{} MiB of memory are swapped out, and page faults increase the latency; help: free memory, then run `swapoff -a`",
        used / 1024
    );
    (used > 1024).then(|| Warning::new("swap", text))
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
        assert!(text.contains("governor powersave;"), "{text}");
    }

    #[test]
    fn swap_in_use_is_a_warning() {
        let head = "Filename Type Size Used Priority\n";
        assert_eq!(
            swap_use(&format!("{head}/swap file 1000000 100 -2\n")),
            None
        );
        assert!(
            swap_use(&format!("{head}/swap file 9000000 20480 -2\n"))
                .unwrap()
                .text
                .starts_with("20 MiB")
        );
    }
}
