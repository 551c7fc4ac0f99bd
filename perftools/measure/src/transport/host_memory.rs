//! Checks that the host has enough memory for a test.

use std::fs;

use base::error::{Error, Result};
use base::memory::check_room;
use base::units::Style;

use crate::spec::Shape;
use crate::spec::tuning::Pages;

/// Checks that the host has enough memory for `ends` ends of a test, which use host memory, and
/// that the limit of this process has room for one of them. Without this check, the kernel would
/// kill processes to get memory, or a failed small allocation would abort this process.
///
/// # Errors
/// Returns an error with the size of the available memory if it is too small.
pub(super) fn check_available_memory(shape: &Shape, ends: u64) -> Result<()> {
    if ends > 0 {
        check_room("buffers, queues and stacks", shape.footprint().memory)?;
    }
    // Huge pages are reserved in advance, and on-demand paging needs no pinned memory.
    if shape.tuning.pages != Pages::Normal || shape.tuning.on_demand {
        return Ok(());
    }
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let needed = shape.memory() * ends;
    let Some(available) = available(&meminfo).filter(|available| needed > *available) else {
        return Ok(());
    };
    let style = Style::default();
    let both = if ends > 1 { " for both ends" } else { "" };
    Err(Error::limit(format!(
        "{} of buffers{both}: this host has {} of memory available",
        style.size(needed),
        style.size(available)
    ))
    .with_help("set --msg-size (-m), --qps, --threads or --depth lower"))
}

/// Returns the memory available to processes in bytes, from the text of `/proc/meminfo`.
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
    use test_support::text::assert_contains;

    use super::*;
    use crate::spec::test::Test;
    use crate::spec::{Bounds, Spec};

    #[test]
    fn available_memory_limits_the_size_of_a_test() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:    1024 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(available(""), None);
        let spec = Spec::new(Test::RcBw);
        let shape = spec
            .shape_for_depth(128, Test::RcBw.plan().unwrap(), &Bounds::default())
            .unwrap();
        check_available_memory(&shape, 2).unwrap();
        let text = check_available_memory(&shape, 1 << 40)
            .unwrap_err()
            .to_string();
        assert_contains(&text, &["of memory available; help: set --msg-size (-m)"]);
    }
}
