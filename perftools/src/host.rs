//! What this host is, for the test `conf`, and whether it has the memory for a test.

use std::fs;

use crate::config::Shape;
use crate::error::{Error, Result};
use crate::report::record::HostConf;
use crate::tuning::Pages;
use crate::units::Style;

/// Whether the memory of so many ends of a test is there. What is not, the kernel takes by ending
/// programs.
///
/// # Errors
/// It is not: says how much is.
pub fn has_memory_for(shape: &Shape, ends: u64) -> Result<()> {
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

/// This host's name, processors, operating system, and the version of this program.
pub fn conf() -> HostConf {
    let node = nix::unistd::gethostname()
        .map_or_else(|_| "?".to_owned(), |n| n.to_string_lossy().into_owned());
    let os = ["/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease"]
        .map(|p| fs::read_to_string(p).unwrap_or_default());
    HostConf {
        node,
        cpu: cpu(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
        os: os.map(|s| s.trim().to_owned()).join(" "),
        rperf: env!("CARGO_PKG_VERSION").to_owned(),
    }
}

/// How many processors of which model, from the text of `/proc/cpuinfo`.
fn cpu(info: &str) -> String {
    let values = |key: &'static str| {
        info.lines().filter_map(move |l| {
            l.split_once(':')
                .filter(|(k, _)| k.trim() == key)
                .map(|(_, v)| v.trim())
        })
    };
    let model = values("model name")
        .next()
        .unwrap_or(std::env::consts::ARCH);
    match values("processor").count() {
        0 | 1 => model.to_owned(),
        n => format!("{n} Cores: {model}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::options::Options;
    use crate::config::{Bounds, Spec};
    use crate::test::Test;
    use clap::Parser;

    #[test]
    fn processors_are_counted_and_named() {
        let one = "processor\t: 0\nmodel name\t: CPU 9000\n";
        assert_eq!(cpu(one), "CPU 9000");
        assert_eq!(cpu(&one.repeat(2)), "2 Cores: CPU 9000");
        assert_eq!(cpu(""), std::env::consts::ARCH);
    }

    #[test]
    fn memory_to_spare_is_read_and_held_against_what_a_test_takes() {
        assert_eq!(
            available("MemTotal: 9 kB\nMemAvailable:    1024 kB\n"),
            Some(1 << 20)
        );
        assert_eq!(available(""), None);
        let spec = Spec::new(Test::RcBw, &Options::try_parse_from(["rperf"]).unwrap()).unwrap();
        let shape = spec
            .agreed(128, Test::RcBw.plan().unwrap(), &Bounds::default())
            .unwrap();
        has_memory_for(&shape, 2).unwrap();
        let text = has_memory_for(&shape, 1 << 40).unwrap_err().to_string();
        assert!(
            text.contains("of memory to spare; give --msg-size (-m)"),
            "{text}"
        );
    }

    #[test]
    fn this_host_has_a_name_and_a_system() {
        let conf = conf();
        assert!(
            !conf.node.is_empty() && conf.os.starts_with("Linux"),
            "{conf:?}"
        );
    }
}
