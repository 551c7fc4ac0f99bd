//! A reflector on a queue pair.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use base::error::Result;
use ibverbs::wr::{Destination, HeldAddress};
use ibverbs::{AhAttr, GRH_LEN, Gid, GlobalRoute, Lid, Qkey, UdSource};
use measure::transport::LinkType;
use measure::transport::device::OpenedDevice;

use super::datagram_qp::{DatagramQp, Event};
use super::packet::{Kind, Packet};
use super::reflector::{CHECK_MILLIS, Settings, Usage, is_probe, reply};

/// Maximum number of addresses of probers that a reflector keeps.
const MAX_ADDRESSES: usize = 16_384;

/// The address of a prober: its GID and the index of the local GID, or its LID; flow label, and
/// service level.
type Prober = (Option<(Gid, u32)>, u16, u32, u8);

/// The addresses of probers, up to a limit.
struct Addresses<T> {
    known: HashMap<Prober, T>,
    limit: usize,
}

impl<T: Copy> Addresses<T> {
    fn new(limit: usize) -> Self {
        Self {
            known: HashMap::new(),
            limit,
        }
    }

    /// Returns `true` if the addresses must be released. Until then, nothing is sent.
    fn is_full(&self) -> bool {
        self.known.len() >= self.limit
    }

    /// Returns the address of a prober, which `create` creates if it is not known. Returns `None`
    /// at the limit, also for a known one.
    fn get(&mut self, prober: Prober, create: impl FnOnce() -> Option<T>) -> Option<T> {
        if self.is_full() {
            return None;
        }
        if let Some(address) = self.known.get(&prober) {
            return Some(*address);
        }
        let address = create()?;
        self.known.insert(prober, address);
        Some(address)
    }
}

/// A reflector on a queue pair.
pub(super) struct QpReflector {
    qp: DatagramQp,
    port: OpenedDevice,
    key: u64,
    settings: Settings,
    addresses: Addresses<HeldAddress>,
    /// Probes whose answer is not sent yet, by the tag of the answer: the probe, its sender and
    /// the time of its arrival.
    arrived: HashMap<u64, (Packet, Destination, u64)>,
}

impl QpReflector {
    pub(super) fn new(qp: DatagramQp, port: OpenedDevice, key: u64, settings: Settings) -> Self {
        Self {
            qp,
            port,
            key,
            settings,
            addresses: Addresses::new(MAX_ADDRESSES),
            arrived: HashMap::new(),
        }
    }

    /// Answers probes until the reflector must end.
    pub(super) fn run(&mut self, usage: &Usage) -> Result<()> {
        let mut events = Vec::new();
        let mut next_tag = 1;
        while !self.settings.is_over(usage) {
            self.qp.wait(Duration::from_millis(CHECK_MILLIS.into()))?;
            self.qp.poll(&mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Received {
                        packet,
                        header,
                        source,
                        at,
                    } if is_probe(&packet, self.key) => {
                        // Without an address the probe is lost, as in the network.
                        let Some(to) = self.destination(&source, &header, &packet) else {
                            continue;
                        };
                        usage.record();
                        let answer = reply(&packet, Kind::Answer, 0);
                        if self.qp.send(&answer, to, next_tag)? {
                            self.arrived.insert(next_tag, (packet, to, at));
                            next_tag += 1;
                        }
                    }
                    Event::Sent { tag, at } => {
                        // The tag of a timing is 0.
                        let Some((probe, to, arrived)) = self.arrived.remove(&tag) else {
                            continue;
                        };
                        let nanos = at.saturating_sub(arrived);
                        let _ = self.qp.send(&reply(&probe, Kind::Timing, nanos), to, 0)?;
                    }
                    Event::Received { .. } => {}
                }
            }
            if self.addresses.is_full() && self.arrived.is_empty() {
                // Fails while timings are in flight, and is tried again. No probe is answered until
                // it succeeds, so that the requests in flight end.
                if self.qp.qp().release_addresses().is_ok() {
                    self.addresses.known.clear();
                }
            }
        }
        Ok(())
    }

    /// Returns the destination of an answer, which gets the flow label of the probe, and the Q_Key
    /// in it. Returns `None` if the prober is not admitted, cannot be reached, or the limit of
    /// addresses is reached.
    fn destination(
        &mut self,
        source: &UdSource,
        header: &[u8; GRH_LEN],
        probe: &Packet,
    ) -> Option<Destination> {
        let gids = match self.port.link {
            LinkType::Roce => {
                let (from, to) = gids(header);
                if !self.settings.admits(ip(from), Some(ip(to))) {
                    return None;
                }
                let local = self
                    .port
                    .addresses
                    .iter()
                    .find(|a| a.ip.map(Gid::from) == Some(to));
                Some((from, local?.gid_index?))
            }
            _ => None,
        };
        let prober = (gids, source.slid.0, probe.flow_label, source.sl);
        let (qp, port_num) = (&mut self.qp, self.port.port_num);
        let address = self.addresses.get(prober, || {
            let handle = qp.pd().create_ah(&path(&prober, port_num)).ok()?;
            qp.qp().hold_address(&handle).ok()
        })?;
        Some(Destination {
            address,
            qpn: source.qpn,
            qkey: Qkey(probe.qkey),
        })
    }
}

/// Returns the path to a prober.
fn path(prober: &Prober, port_num: u8) -> AhAttr {
    let (gids, lid, flow_label, sl) = *prober;
    match gids {
        Some((gid, index)) => {
            let index = u8::try_from(index).unwrap_or(u8::MAX);
            let route = GlobalRoute::new(gid, index).flow_label(flow_label);
            AhAttr::for_lid(port_num, Lid(0)).grh(route)
        }
        None => AhAttr::for_lid(port_num, Lid(lid)).sl(sl),
    }
}

fn ip(gid: Gid) -> IpAddr {
    Ipv6Addr::from(gid.0).into()
}

/// Returns the source and the destination in a global route header. With RoCE v2 over IPv4, the
/// header is in the last 20 bytes.
fn gids(header: &[u8; GRH_LEN]) -> (Gid, Gid) {
    let v6 = |at: usize| {
        let bytes = header[at..].first_chunk::<16>().copied();
        Gid::from(Ipv6Addr::from(bytes.unwrap_or_default()))
    };
    let v4 = |at: usize| {
        let bytes = header[at..].first_chunk::<4>().copied();
        Gid::from(Ipv4Addr::from(bytes.unwrap_or_default()))
    };
    if header[0] >> 4 == 6 {
        (v6(8), v6(24))
    } else {
        (v4(32), v4(36))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_limit() {
        let mut addresses = Addresses::new(2);
        let prober = |lid| (None, lid, 0, 0);
        assert_eq!(addresses.get(prober(1), || None), None);
        assert_eq!(addresses.get(prober(1), || Some(10)), Some(10));
        assert_eq!(addresses.get(prober(1), || Some(11)), Some(10));
        assert_eq!(addresses.get(prober(2), || Some(20)), Some(20));
        for lid in 1..5 {
            assert_eq!(addresses.get(prober(lid), || Some(30)), None);
        }
        assert!(addresses.is_full() && addresses.known.len() == 2);
    }

    #[test]
    fn gids_of_both_versions_of_ip_are_found() {
        let mut header = [0; GRH_LEN];
        header[20] = 0x45;
        header[32..36].copy_from_slice(&[10, 0, 0, 1]);
        header[36..40].copy_from_slice(&[10, 0, 0, 2]);
        let text = |(a, b): (Gid, Gid)| format!("{a} {b}");
        assert_eq!(text(gids(&header)), "::ffff:10.0.0.1 ::ffff:10.0.0.2");
        header[0] = 0x60;
        header[8..10].copy_from_slice(&[0xfd, 0x99]);
        header[24..26].copy_from_slice(&[0xfd, 0x98]);
        header[39] = 2;
        header[20..24].fill(0);
        let (_, to) = gids(&header);
        assert!(to.to_string().starts_with("fd98:"), "{to}");
    }
}
