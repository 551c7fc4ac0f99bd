//! Traffic counters of the host's ports, which drivers export in sysfs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Directory with one entry per RDMA device.
const DEVICES: &str = "/sys/class/infiniband";
/// Unit of `port_xmit_data` and `port_rcv_data` in bytes (IBTA: 32-bit words).
const DATA_UNIT: u64 = 4;

/// Traffic of a port, summed over both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortTraffic {
    /// Number of bytes, including headers. `None` if the driver does not count them.
    pub bytes: Option<u64>,
    /// Number of packets. `None` if the driver does not count them.
    pub packets: Option<u64>,
}

/// Counters of all ports at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PortCounters(BTreeMap<(String, u8), PortTraffic>);

impl PortCounters {
    /// Reads the counters of all ports of this host.
    pub fn now() -> Self {
        Self::read_from(Path::new(DEVICES))
    }

    fn read_from(devices: &Path) -> Self {
        let mut ports = BTreeMap::new();
        for device in fs::read_dir(devices).into_iter().flatten().flatten() {
            let name = device.file_name().to_string_lossy().into_owned();
            for port in fs::read_dir(device.path().join("ports"))
                .into_iter()
                .flatten()
                .flatten()
            {
                let Some(number) = port.file_name().to_str().and_then(|n| n.parse().ok()) else {
                    continue;
                };
                let read = |directory: &str, file: &str| {
                    let text = fs::read_to_string(port.path().join(directory).join(file)).ok()?;
                    text.trim().parse::<u64>().ok()
                };
                let sum =
                    |directory, a, b| Some(read(directory, a)?.wrapping_add(read(directory, b)?));
                let traffic = PortTraffic {
                    bytes: sum("counters", "port_xmit_data", "port_rcv_data")
                        .map(|words| words.wrapping_mul(DATA_UNIT)),
                    packets: sum("counters", "port_xmit_packets", "port_rcv_packets")
                        .or_else(|| sum("hw_counters", "sent_pkts", "rcvd_pkts")),
                };
                ports.insert((name.clone(), number), traffic);
            }
        }
        Self(ports)
    }

    /// Returns the traffic of a port between `earlier` and `self`. Fields are `None` if a counter
    /// is missing or was reset in between.
    pub fn since(&self, earlier: &Self, device: &str, port: u8) -> PortTraffic {
        let key = (device.to_owned(), port);
        let (Some(now), Some(before)) = (self.0.get(&key), earlier.0.get(&key)) else {
            return PortTraffic::default();
        };
        let difference = |now: Option<u64>, before: Option<u64>| now?.checked_sub(before?);
        PortTraffic {
            bytes: difference(now.bytes, before.bytes),
            packets: difference(now.packets, before.packets),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sets_of_sysfs_counters_are_read() {
        let root = std::env::temp_dir().join(format!("rperf-counters-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let hardware = "mlx5_0/ports/1/counters";
        for (file, text) in [
            ("port_xmit_data", "100\n"),
            ("port_rcv_data", "50\n"),
            ("port_xmit_packets", "7\n"),
            ("port_rcv_packets", "3\n"),
        ] {
            write(&format!("{hardware}/{file}"), text);
        }
        write("rxe0/ports/1/hw_counters/sent_pkts", "10\n");
        write("rxe0/ports/1/hw_counters/rcvd_pkts", "20\n");
        write("siw0/ports/1/state", "4: ACTIVE\n");
        let before = PortCounters::read_from(&root);
        write("rxe0/ports/1/hw_counters/sent_pkts", "15\n");
        write(&format!("{hardware}/port_xmit_data"), "300\n");
        let after = PortCounters::read_from(&root);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            after.since(&before, "mlx5_0", 1),
            PortTraffic {
                bytes: Some(800),
                packets: Some(0)
            }
        );
        assert_eq!(
            after.since(&before, "rxe0", 1),
            PortTraffic {
                bytes: None,
                packets: Some(5)
            }
        );
        assert_eq!(after.since(&before, "siw0", 1), PortTraffic::default());
        assert_eq!(before.since(&after, "rxe0", 1).packets, None);
        assert_eq!(after.since(&before, "none", 1), PortTraffic::default());
    }
}
