//! Counters of an RDMA port, of a network interface, and of the kernel's TCP and UDP.
//!
//! The name of a counter is its group and the name that the kernel gives it, such as
//! `hw_counters/out_of_sequence`:
//!
//! | group | source |
//! |---|---|
//! | `hw_counters` | the driver, over netlink or in the directory of the port |
//! | `counters` | the port, as the IBTA specifies them |
//! | `netdev` | the network interface, over netlink or in its directory (`statistics`) |
//! | `ethtool` | the driver of the network interface (`ethtool -S`), without single queues |
//! | `Tcp`, `TcpExt`, `Udp`, … | protocols of the network namespace (`/proc/net/snmp`, `netstat`) |

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::Duration;

use super::command::output;
use super::link_statistics::link_statistics;
use super::resources::port_counters;
use super::root::Root;

/// Groups of protocols that are read from `/proc`.
const PROTOCOLS: [&str; 4] = ["Tcp", "TcpExt", "Udp", "IpExt"];
/// Values of protocols that are not counters.
const NOT_COUNTERS: [&str; 5] = [
    "Tcp/RtoAlgorithm",
    "Tcp/RtoMin",
    "Tcp/RtoMax",
    "Tcp/MaxConn",
    "Tcp/CurrEstab",
];
/// Beginnings of the names of values in `hw_counters` that are not counters: objects in use.
const NOT_HW_COUNTERS: [&str; 3] = ["lifespan", "active_", "watermark_"];
/// Longest lifespan of a driver's values for which a reader waits.
const MAX_LIFESPAN: Duration = Duration::from_millis(200);

/// Counters whose values stop at a maximum (IBTA volume 1, PortCounters), and that maximum.
const SATURATING: &[(&str, u64)] = &[
    ("counters/VL15_dropped", 0xffff),
    ("counters/excessive_buffer_overrun_errors", 0xf),
    ("counters/link_downed", 0xff),
    ("counters/link_error_recovery", 0xff),
    ("counters/local_link_integrity_errors", 0xf),
    ("counters/port_rcv_constraint_errors", 0xff),
    ("counters/port_rcv_errors", 0xffff),
    ("counters/port_rcv_remote_physical_errors", 0xffff),
    ("counters/port_rcv_switch_relay_errors", 0xffff),
    ("counters/port_xmit_constraint_errors", 0xff),
    ("counters/port_xmit_discards", 0xffff),
    ("counters/port_xmit_wait", 0xffff_ffff),
    ("counters/symbol_error", 0xffff),
];

/// Values of counters at one moment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters(BTreeMap<String, u64>);

/// Differences between the values of counters at two moments.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Counters that increased, and by how much.
    pub increased: BTreeMap<String, u64>,
    /// Counters whose increase is unknown: they decreased, reached their maximum, or could be read
    /// only once.
    pub unknown: Vec<String>,
}

impl Counters {
    /// Reads the counters of a port of an RDMA device. Counters that the driver lacks, or that
    /// cannot be read, are absent.
    pub fn of_port(root: &Root, device: &str, port: u8) -> Self {
        Self::read_port(root, device, port, || {})
    }

    /// Does the same as [`Counters::of_port`], and returns no values from before the call. Files
    /// may have old values, so it waits before it reads them.
    pub fn of_port_now(root: &Root, device: &str, port: u8) -> Self {
        Self::read_port(root, device, port, || sleep(lifespan(root, device, port)))
    }

    fn read_port(root: &Root, device: &str, port: u8, before_files: impl FnOnce()) -> Self {
        let directory = format!("/sys/class/infiniband/{device}/ports/{port}");
        let hw_counters = format!("{directory}/hw_counters");
        let mut all = Self::default();
        if root.exists(&hw_counters) {
            let from_kernel = root.is_host().then(|| port_counters(device, port));
            if let Some(counters) = from_kernel.flatten() {
                all = all.with_group("hw_counters", counters);
            } else {
                before_files();
                all.read_directory(root, &hw_counters, "hw_counters");
            }
        }
        all.0.retain(|name, _| {
            let name = name.strip_prefix("hw_counters/");
            !name.is_some_and(|name| NOT_HW_COUNTERS.iter().any(|word| name.starts_with(word)))
        });
        all.read_directory(root, &format!("{directory}/counters"), "counters");
        all
    }

    /// Adds the statistics of a network interface.
    #[must_use]
    pub fn with_netdev(mut self, root: &Root, netdev: &str) -> Self {
        if let Some(statistics) = root.is_host().then(|| link_statistics(netdev)).flatten() {
            return self.with_group("netdev", statistics);
        }
        let directory = format!("/sys/class/net/{netdev}/statistics");
        self.read_directory(root, &directory, "netdev");
        let file = format!("/sys/class/net/{netdev}/carrier_down_count");
        self.add("netdev/carrier_down_count", root.value(&file));
        self
    }

    /// Adds the counters of TCP and UDP of this network namespace.
    #[must_use]
    pub fn with_protocols(mut self, root: &Root) -> Self {
        for file in ["/proc/net/snmp", "/proc/net/netstat"] {
            let text = root.text(file).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            // Each protocol has a line with names, and a line with values.
            for pair in lines.chunks_exact(2) {
                self.read_protocol(pair[0], pair[1]);
            }
        }
        self
    }

    fn read_protocol(&mut self, names: &str, values: &str) {
        let Some((protocol, names)) = names.split_once(':') else {
            return;
        };
        let Some(values) = values
            .strip_prefix(protocol)
            .and_then(|v| v.strip_prefix(':'))
        else {
            return;
        };
        if !PROTOCOLS.contains(&protocol) {
            return;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            let name = format!("{protocol}/{name}");
            if !NOT_COUNTERS.contains(&name.as_str()) {
                self.add(&name, Some(value.to_owned()));
            }
        }
    }

    /// Adds counters of other sources under the name of a group.
    #[must_use]
    pub fn with_group(
        mut self,
        group: &str,
        counters: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        let counters = counters.into_iter();
        self.0
            .extend(counters.map(|(name, value)| (format!("{group}/{name}"), value)));
        self
    }

    fn read_directory(&mut self, root: &Root, directory: &str, group: &str) {
        let directory = root.directory(directory);
        for name in directory.list() {
            let value = directory.value(&name);
            self.add(&format!("{group}/{name}"), value);
        }
    }

    /// Adds a counter, unless its text is not a number, such as `N/A (no PMA)`.
    fn add(&mut self, name: &str, value: Option<String>) {
        if let Some(value) = value.and_then(|value| value.parse().ok()) {
            self.0.insert(name.to_owned(), value);
        }
    }

    /// Returns the value of a counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// Returns the names and values of all counters, in the order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Returns the differences from `earlier` to `self`.
    pub fn since(&self, earlier: &Self) -> Differences {
        let mut differences = Differences::default();
        for (name, now) in &self.0 {
            let before = earlier.0.get(name).copied();
            match before.and_then(|before| now.checked_sub(before)) {
                Some(_) if is_saturated(name, *now) => differences.unknown.push(name.clone()),
                Some(0) => {}
                Some(by) => drop(differences.increased.insert(name.clone(), by)),
                None => differences.unknown.push(name.clone()),
            }
        }
        let lost = earlier.0.keys().filter(|name| !self.0.contains_key(*name));
        differences.unknown.extend(lost.cloned());
        differences.unknown.sort_unstable();
        differences
    }
}

/// Returns the statistics that the driver of a network interface reports to ethtool. The list is
/// empty if the program is not installed or the driver has none.
pub fn ethtool_statistics(netdev: &str) -> Vec<(String, u64)> {
    if netdev.starts_with('-') {
        return Vec::new();
    }
    parse_ethtool(&output("ethtool", &["-S", netdev]).unwrap_or_default())
}

/// Parses lines of the form `name: value`. Omits the statistics of single queues: an adapter can
/// have thousands of them.
fn parse_ethtool(text: &str) -> Vec<(String, u64)> {
    let is_of_queue = |name: &str| {
        let rest = ["rx", "tx", "ch"]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix));
        name.starts_with('[')
            || name.contains("queue_")
            || rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    let values = text.lines().filter_map(|line| {
        let (name, value) = line.trim().rsplit_once(':')?;
        Some((name.trim(), value.trim().parse().ok()?))
    });
    values
        .filter(|(name, _)| !is_of_queue(name))
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// File of infiniband-diags with thresholds of counters, which `ibqueryerrors` reads.
pub(crate) const THRESHOLDS: &str = "/etc/infiniband-diags/error_thresholds";

/// Returns the thresholds of counters in [`THRESHOLDS`].
pub(crate) fn thresholds(root: &Root) -> BTreeMap<String, u64> {
    parse_thresholds(&root.text(THRESHOLDS).unwrap_or_default())
}

pub(crate) fn parse_thresholds(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().map(str::trim);
    let pairs = lines.filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().parse().ok()?))
    });
    pairs.collect()
}

/// Returns `true` if the counter has stopped at its maximum.
fn is_saturated(name: &str, value: u64) -> bool {
    SATURATING
        .iter()
        .any(|(saturating, max)| name == *saturating && value >= *max)
}

/// Returns the time for which the driver returns old values of `hw_counters`, up to a limit; zero
/// if the port has none. The kernel's replies over netlink are always new.
fn lifespan(root: &Root, device: &str, port: u8) -> Duration {
    let file = format!("/sys/class/infiniband/{device}/ports/{port}/hw_counters/lifespan");
    let millis = root.number(&file).unwrap_or(0);
    Duration::from_millis(millis).min(MAX_LIFESPAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::temp_dir::TempDir;

    fn host(files: &[(&str, &str)]) -> (TempDir, Root) {
        let directory = TempDir::new();
        for (path, text) in files {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = Root::at(directory.path()).unwrap();
        (directory, root)
    }

    const PORT: &str = "sys/class/infiniband/mlx5_0/ports/1";

    #[test]
    fn each_group_is_read() {
        let hw = |name: &str| format!("{PORT}/hw_counters/{name}");
        let (_directory, root) = host(&[
            (&hw("out_of_sequence"), "7\n"),
            (&hw("lifespan"), "10\n"),
            (&hw("active_qps"), "3\n"),
            (&format!("{PORT}/counters/symbol_error"), "0\n"),
            (&format!("{PORT}/counters/port_rcv_data"), "N/A (no PMA)\n"),
            ("sys/class/net/eth0/statistics/rx_dropped", "5\n"),
            ("sys/class/net/eth0/carrier_down_count", "1\n"),
            (
                "proc/net/snmp",
                "Ip: Forwarding\nIp: 1\nTcp: MaxConn RetransSegs\nTcp: -1 12\n",
            ),
            ("proc/net/netstat", "TcpExt: TCPTimeouts\nTcpExt: 4\n"),
        ]);
        let counters = Counters::of_port(&root, "mlx5_0", 1)
            .with_netdev(&root, "eth0")
            .with_protocols(&root)
            .with_group("ethtool", [("rx_prio3_pause".to_owned(), 9)]);
        assert_eq!(
            counters.iter().collect::<Vec<_>>(),
            [
                ("Tcp/RetransSegs", 12),
                ("TcpExt/TCPTimeouts", 4),
                ("counters/symbol_error", 0),
                ("ethtool/rx_prio3_pause", 9),
                ("hw_counters/out_of_sequence", 7),
                ("netdev/carrier_down_count", 1),
                ("netdev/rx_dropped", 5),
            ]
        );
        assert_eq!(lifespan(&root, "mlx5_0", 1), Duration::from_millis(10));
        assert_eq!(lifespan(&root, "mlx5_0", 2), Duration::ZERO);
        assert!(Counters::of_port(&root, "none", 1).0.is_empty());
    }

    fn counters(values: &[(&str, u64)]) -> Counters {
        Counters(
            values
                .iter()
                .map(|(name, n)| ((*name).to_owned(), *n))
                .collect(),
        )
    }

    #[test]
    fn last_threshold_of_a_counter_is_used() {
        let text =
            "# comment\n#LinkDownedCounter=3\nSymbolErrorCounter=7\n SymbolErrorCounter = 9\nx";
        let thresholds = parse_thresholds(text);
        assert_eq!(thresholds.get("SymbolErrorCounter"), Some(&9));
        assert_eq!(thresholds.get("LinkDownedCounter"), None);
    }

    #[test]
    fn increases_that_are_not_certain_are_unknown() {
        let before = counters(&[
            ("a", 5),
            ("counters/symbol_error", 65_535),
            ("counters/link_downed", 3),
            ("disappears", 1),
            ("reset", 100),
            ("same", 1),
            // A 32-bit counter that wraps looks like one that was reset.
            ("wraps", u64::from(u32::MAX)),
        ]);
        let after = counters(&[
            ("a", 8),
            ("appears", 1),
            ("counters/symbol_error", 65_535),
            ("counters/link_downed", 4),
            ("reset", 2),
            ("same", 1),
            ("wraps", 10),
        ]);
        let differences = after.since(&before);
        let increased: Vec<_> = differences.increased.into_iter().collect();
        assert_eq!(
            increased,
            [("a".to_owned(), 3), ("counters/link_downed".to_owned(), 1)]
        );
        assert_eq!(
            differences.unknown,
            [
                "appears",
                "counters/symbol_error",
                "disappears",
                "reset",
                "wraps"
            ]
        );
    }

    #[test]
    fn statistics_of_ethtool_are_read_without_those_of_queues() {
        // Names of mlx5, bnxt_en, veth and ena.
        let text = "NIC statistics:\n     rx_prio3_pause: 12\n     rx_discards_phy: 0\n     \
                    rx0_packets: 5\n     [0]: rx_ucast_packets: 7\n     queue_0_tx_cnt: 3\n     \
                    rx_queue_0_drops: 2\n     ch12_poll: 4\n     rx_broken: x\n";
        let expected = [("rx_prio3_pause", 12), ("rx_discards_phy", 0)];
        assert_eq!(
            parse_ethtool(text),
            expected.map(|(name, value)| (name.to_owned(), value))
        );
        assert_eq!(parse_ethtool(""), []);
        assert_eq!(ethtool_statistics("no-such-interface"), []);
    }
}
