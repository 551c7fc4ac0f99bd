//! The statistics of a network interface, over `NETLINK_ROUTE`: one request instead of a file of
//! sysfs for each.

use netlink_packet_core::{DefaultNla, Emitable};

use crate::netlink::{Attributes, Netlink};

/// `RTM_GETLINK`: queries a network interface.
const GET_LINK: u16 = 18;
const NAME: u16 = 3;
/// A `struct rtnl_link_stats64`.
const STATS64: u16 = 23;
const CARRIER_DOWN_COUNT: u16 = 48;
/// Length in bytes of `struct ifinfomsg`, which precedes the attributes.
const HEADER_LEN: usize = 16;

/// Names of the values of a `struct rtnl_link_stats64` in sysfs. Newer kernels have more of them.
const NAMES: [&str; 24] = [
    "rx_packets",
    "tx_packets",
    "rx_bytes",
    "tx_bytes",
    "rx_errors",
    "tx_errors",
    "rx_dropped",
    "tx_dropped",
    "multicast",
    "collisions",
    "rx_length_errors",
    "rx_over_errors",
    "rx_crc_errors",
    "rx_frame_errors",
    "rx_fifo_errors",
    "rx_missed_errors",
    "tx_aborted_errors",
    "tx_carrier_errors",
    "tx_fifo_errors",
    "tx_heartbeat_errors",
    "tx_window_errors",
    "rx_compressed",
    "tx_compressed",
    "rx_nohandler",
];

/// Returns the statistics of an interface and its number of lost carriers, with the names of sysfs.
pub(crate) fn link_statistics(netdev: &str) -> Option<Vec<(String, u64)>> {
    let reply = Netlink::open(None)
        .and_then(|mut netlink| netlink.get(GET_LINK, &Request(netdev)))
        .ok()?;
    reply.payloads().find_map(parse)
}

/// The request for one interface: an empty header, and the name.
struct Request<'a>(&'a str);

impl Emitable for Request<'_> {
    fn buffer_len(&self) -> usize {
        HEADER_LEN + name(self.0).buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        name(self.0).emit(&mut buffer[HEADER_LEN..]);
    }
}

fn name(netdev: &str) -> DefaultNla {
    let mut bytes = netdev.as_bytes().to_vec();
    bytes.push(0);
    DefaultNla::new(NAME, bytes)
}

fn parse(message: &[u8]) -> Option<Vec<(String, u64)>> {
    let attributes = Attributes(message.get(HEADER_LEN..)?);
    let values = attributes.all(STATS64).next()?.chunks_exact(8);
    let values = values.filter_map(|value| value.try_into().ok().map(u64::from_ne_bytes));
    let carrier = attributes.u32(CARRIER_DOWN_COUNT).map(u64::from);
    let statistics = NAMES.into_iter().zip(values);
    let all = statistics.chain(carrier.map(|count| ("carrier_down_count", count)));
    Some(all.map(|(name, value)| (name.to_owned(), value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    #[cfg_attr(miri, ignore)]
    fn statistics_are_those_of_sysfs() {
        let found = link_statistics("lo").unwrap();
        let value = |name: &str| {
            let file = |name: &str| format!("/sys/class/net/lo/{name}");
            let value = fs::read_to_string(file(&format!("statistics/{name}")))
                .or_else(|_| fs::read_to_string(file(name)))
                .unwrap();
            value.trim().parse::<u64>().unwrap()
        };
        for (name, before) in &found {
            // Traffic increases it in the meantime.
            assert!(*before <= value(name), "{name} was {before}");
        }
        let files = fs::read_dir("/sys/class/net/lo/statistics").unwrap();
        let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let has = |file: &String| found.iter().any(|(name, _)| name == file);
        assert_eq!(files.filter(|file| !has(file)).collect::<Vec<_>>(), [""; 0]);
        assert!(has(&"carrier_down_count".to_owned()));
        assert_eq!(link_statistics("no-such-interface"), None);
    }

    #[test]
    fn a_short_message_has_no_statistics() {
        assert_eq!(parse(&[0; HEADER_LEN - 1]), None);
        assert_eq!(parse(&[0; HEADER_LEN]), None);
    }
}
