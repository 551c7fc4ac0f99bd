//! Checks that the host has the memory for a test.

use std::fs;

use crate::common::error::{Error, Result};
use crate::common::units::Style;
use crate::rperf::spec::Shape;
use crate::rperf::spec::tuning::Pages;

/// Whether the memory of so many ends of a test is there. What is not, the kernel takes by ending
/// programs.
///
/// # Errors
/// It is not: says how much is.
pub(super) fn has_memory_for(shape: &Shape, ends: u64) -> Result<()> {
    let (wanted, meminfo) = (
        shape.memory() * ends,
        fs::read_to_string("/proc/meminfo").unwrap_or_default(),
    );
    // Huge pages were set aside, and what is not pinned need not be there.
    let Some(there) = available(&meminfo)
        .filter(|_| shape.tuning.pages == Pages::Normal && !shape.tuning.on_demand)
    else {
        return Ok(());
    };
    if wanted <= there {
        return Ok(());
    }
    let (style, both) = (
        Style::default(),
        if ends > 1 { " for both ends" } else { "" },
    );
    Err(Error::limit(format!(
        "{} of buffers{both}: this host has {} of memory to spare; give --msg-size (-m), --qps, --threads or --depth less",
        style.size(wanted),
        style.size(there)
    )))
}

/// Bytes that programs can have without another losing its own, by the text of `/proc/meminfo`.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim()
        .strip_suffix("kB")?
        .trim()
        .parse::<u64>()
        .ok()?
        .checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::args::options::Options;
    use crate::rperf::spec::Bounds;
    use crate::rperf::spec::test::Test;
    use clap::Parser;

    #[test]
    fn memory_to_spare_is_read_and_held_against_what_a_test_takes() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:    1024 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(available(""), None);
        let spec = Options::try_parse_from(["rperf"])
            .unwrap()
            .to_spec(Test::RcBw)
            .unwrap();
        let shape = spec
            .shape_for_depth(128, Test::RcBw.plan().unwrap(), &Bounds::default())
            .unwrap();
        has_memory_for(&shape, 2).unwrap();
        let text = has_memory_for(&shape, 1 << 40).unwrap_err().to_string();
        assert!(
            text.contains("of memory to spare; give --msg-size (-m)"),
            "{text}"
        );
    }
}
