//! The configuration of a host, which the test `conf` prints.

use std::fs;

use base::system::host_name;
use serde::{Deserialize, Serialize};

/// Configuration of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct HostConf {
    /// Name of the host.
    pub node: String,
    /// Number and model of its processors.
    pub cpu: String,
    /// Name and release of its operating system.
    pub os: String,
    /// Version of rperf on the host.
    pub rperf: String,
    /// Identity of the running kernel, which network namespaces share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<String>,
}

impl HostConf {
    /// Reads the configuration of this host.
    pub fn read() -> Self {
        let node = host_name();
        let os = ["/proc/sys/kernel/ostype", "/proc/sys/kernel/osrelease"]
            .map(|p| fs::read_to_string(p).unwrap_or_default());
        Self {
            node,
            cpu: cpu_description(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default()),
            os: os.map(|s| s.trim().to_owned()).join(" "),
            rperf: env!("CARGO_PKG_VERSION").to_owned(),
            boot: fs::read_to_string("/proc/sys/kernel/random/boot_id")
                .ok()
                .map(|id| id.trim().to_owned()),
        }
    }
}

/// Returns the number and model of the processors from the text of `/proc/cpuinfo`.
fn cpu_description(info: &str) -> String {
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

    #[test]
    fn processors_are_counted_and_named() {
        let one = "processor\t: 0\nmodel name\t: CPU 9000\n";
        assert_eq!(cpu_description(one), "CPU 9000");
        assert_eq!(cpu_description(&one.repeat(2)), "2 Cores: CPU 9000");
        assert_eq!(cpu_description(""), std::env::consts::ARCH);
    }

    #[test]
    fn this_host_has_a_name_and_a_kernel() {
        let conf = HostConf::read();
        assert!(
            !conf.node.is_empty() && conf.os.starts_with("Linux"),
            "{conf:?}"
        );
    }
}
