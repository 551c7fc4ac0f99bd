//! Conditions of a host that can distort measurements: frequency governors and swapped memory.

use crate::cpus::governors;
use crate::root::Root;

/// Conditions of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions {
    /// Frequency governors in use, sorted and without duplicates.
    pub governors: Vec<String>,
    /// Memory that is swapped out, in KiB.
    pub swapped_kib: u64,
}

impl Conditions {
    /// Reads the conditions.
    pub fn read(root: &Root) -> Self {
        Self {
            governors: governors(root).into_keys().collect(),
            swapped_kib: swapped_kib(&root.text("/proc/swaps").unwrap_or_default()),
        }
    }
}

/// Returns the swapped memory from the text of `/proc/swaps`, whose fourth column is the used size
/// in KiB.
fn swapped_kib(swaps: &str) -> u64 {
    swaps
        .lines()
        .skip(1)
        .filter_map(|l| l.split_whitespace().nth(3)?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_swap_of_all_files_is_summed() {
        let head = "Filename Type Size Used Priority\n";
        assert_eq!(swapped_kib(head), 0);
        assert_eq!(swapped_kib(&format!("{head}/a file 1000000 100 -2\n")), 100);
        let two = format!("{head}/a file 9000000 20480 -2\n/b file 9000000 20 -3\n");
        assert_eq!(swapped_kib(&two), 20500);
    }
}
