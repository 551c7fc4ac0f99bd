//! The counters of a port before and after a test: those of its driver, of the port, of its network
//! interface and, where the kernel's TCP or UDP carries the data, of these protocols.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use host::counters::{Counters, Differences, ethtool_statistics};
use host::root::Root;
use serde::{Deserialize, Serialize};

use crate::spec::connection::ConnectionInfo;

/// Unit of `port_xmit_data` and `port_rcv_data` in bytes (IBTA: 32-bit words).
const DATA_UNIT: u64 = 4;

/// Increases of the counters of a port during a test. Other programs that use the port add to them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct CounterChanges {
    /// Increase of each counter that increased. The name is the group of the counter and the name
    /// that the kernel gives it, such as `hw_counters/out_of_sequence`.
    pub increased: BTreeMap<String, u64>,
    /// Names of the counters whose increase is unknown, because they decreased, have reached their
    /// maximum, or could be read only before or only after the test.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unknown: Vec<String>,
}

impl CounterChanges {
    /// Returns the increase of a counter; 0 if it did not increase, does not exist or is unknown.
    pub(crate) fn get(&self, name: &str) -> u64 {
        self.increased.get(name).copied().unwrap_or(0)
    }

    /// Returns the bytes that the port sent and received; 0 if the driver does not count them.
    pub fn bytes(&self) -> u64 {
        let words = self.get("counters/port_xmit_data") + self.get("counters/port_rcv_data");
        words.saturating_mul(DATA_UNIT)
    }

    /// Returns the packets that the port sent and received; 0 if the driver does not count them.
    pub fn packets(&self) -> u64 {
        let port = self.get("counters/port_xmit_packets") + self.get("counters/port_rcv_packets");
        let driver = self.get("hw_counters/sent_pkts") + self.get("hw_counters/rcvd_pkts");
        port.max(driver)
    }
}

/// The counters of the port of one end before a test.
#[derive(Debug)]
pub struct PortCounters {
    root: Root,
    port: Port,
    before: Counters,
    time: Instant,
}

/// A port, and the sources of its counters.
#[derive(Debug)]
struct Port {
    /// Name and port number of the RDMA device; none in tests over sockets.
    device: Option<(String, u8)>,
    netdev: Option<String>,
    /// The network interface is an adapter. Software has no statistics that show more.
    is_adapter: bool,
    /// The kernel's TCP or UDP carries the data.
    protocols: bool,
}

impl PortCounters {
    /// Reads the counters of the port of a connection on this host.
    pub fn read(connection: &ConnectionInfo) -> Self {
        Self::read_below(Root::host(), connection)
    }

    fn read_below(root: Root, connection: &ConnectionInfo) -> Self {
        let is_rdma = connection.port > 0;
        // Soft-iWARP sends through the kernel's TCP. An iWARP adapter has a driver, and a TCP of
        // its own.
        let is_software = connection.hardware.driver.is_none();
        let port = Port {
            device: is_rdma.then(|| (connection.device.clone(), connection.port)),
            netdev: connection.hardware.netdev.clone(),
            is_adapter: !is_software,
            protocols: !is_rdma || (connection.link == "iWARP" && is_software),
        };
        Self {
            before: port.counters(&root, Counters::of_port),
            root,
            port,
            time: Instant::now(),
        }
    }

    /// Returns the time since the counters were read.
    pub fn age(&self) -> Duration {
        self.time.elapsed()
    }

    /// Returns the changes since the counters were read.
    pub fn changes(&self) -> CounterChanges {
        // The values include the end of the test.
        let after = self.port.counters(&self.root, Counters::of_port_now);
        let Differences { increased, unknown } = after.since(&self.before);
        CounterChanges { increased, unknown }
    }
}

impl Port {
    fn counters(&self, root: &Root, of_port: fn(&Root, &str, u8) -> Counters) -> Counters {
        let mut counters = match &self.device {
            Some((device, port)) => of_port(root, device, *port),
            None => Counters::default(),
        };
        if let Some(netdev) = &self.netdev {
            counters = counters.with_netdev(root, netdev);
            if self.is_adapter {
                counters = counters.with_group("ethtool", ethtool_statistics(netdev));
            }
        }
        if self.protocols {
            counters = counters.with_protocols(root);
        }
        counters
    }
}
