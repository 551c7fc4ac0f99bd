//! This side of a connection: the device, its port, and the GID to be known by.

use std::hash::{BuildHasher, RandomState};

use ibverbs::{
    AccessFlags, Connected, Context, Device, Endpoint, Gid, GidEntry, GidType, LinkLayer, Mtu, PortAttr, Psn, Qpn,
    QueuePair, RcPath, TransportType,
};

use crate::Result;

/// An open device, and the address on it that queue pairs use.
#[derive(Debug)]
pub struct Local {
    /// The open device.
    pub context: Context,
    /// Its port, from 1.
    pub port_num: u8,
    /// What the port is.
    pub port: PortAttr,
    /// The GID; `None` on InfiniBand if none was asked for: the LID is enough within a subnet.
    pub gid: Option<GidEntry>,
}

impl Local {
    /// Opens a device (the first one if none is named) and chooses the GID.
    ///
    /// # Errors
    /// When there is no such device, port or GID, and on iWARP, which connects by `rdma_cm` only.
    pub fn open(device: Option<&str>, port_num: u8, gid_index: Option<u32>) -> Result<Self> {
        let device = match device {
            Some(name) => Device::by_name(name)?,
            None => Device::list()?.into_iter().next().ok_or("this host has no RDMA device")?,
        };
        if device.transport() == TransportType::IWARP {
            return Err(
                format!("{} is iWARP, which connects by rdma_cm only: see the rdmacm crate", device.name()).into()
            );
        }
        let context = device.open()?;
        let port = context.query_port(port_num)?;
        let gid = choose_gid(&context.gids(port_num)?, port.link_layer, gid_index)?;
        Ok(Self { context, port_num, port, gid })
    }

    /// The path of a connection from here.
    ///
    /// # Errors
    /// When the GID's index is above 255, which no path can name.
    pub fn path(&self, mtu: Mtu, access: AccessFlags) -> Result<RcPath> {
        let psn = random_psn();
        Ok(RcPath { psn, access, ..RcPath::new(self.port_num, self.sgid_index()?, mtu) })
    }

    /// What to tell the peer of a queue pair here.
    pub fn endpoint(&self, qpn: Qpn, psn: Psn) -> Endpoint {
        Endpoint { qpn, psn, lid: self.port.lid, gid: self.gid.map_or(Gid::default(), |entry| entry.gid) }
    }

    /// Connects two queue pairs of this process with each other.
    ///
    /// # Errors
    /// What the driver refuses.
    pub fn connect_pair<T: Connected>(
        &self,
        path: &RcPath,
        a: &mut QueuePair<T>,
        b: &mut QueuePair<T>,
    ) -> ibverbs::Result<()> {
        a.init(path)?;
        b.init(path)?;
        a.connect(path, &self.endpoint(b.qp_num(), path.psn))?;
        b.connect(path, &self.endpoint(a.qp_num(), path.psn))
    }

    /// The index of the GID, as a path names it.
    ///
    /// # Errors
    /// As [`path`](Self::path).
    pub fn sgid_index(&self) -> Result<Option<u8>> {
        Ok(self.gid.map(|entry| u8::try_from(entry.index)).transpose()?)
    }
}

/// The GID with the index asked for, or the best for reaching others.
///
/// RoCE always needs one. A RoCE v2 GID goes wherever IP goes, one of version 1 no further than the Ethernet segment, and a link-local address is
/// good on its own link only. Among equals an IPv4 address comes first, as it is the one that networks are most often set up for.
fn choose_gid(gids: &[GidEntry], link_layer: LinkLayer, index: Option<u32>) -> Result<Option<GidEntry>> {
    if let Some(index) = index {
        let found = gids.iter().find(|entry| entry.index == index);
        let there = || gids.iter().map(|entry| format!("{} {}", entry.index, entry.gid)).collect::<Vec<_>>().join(", ");
        return Ok(Some(*found.ok_or_else(|| format!("the port has no GID with index {index}; it has: {}", there()))?));
    }
    if link_layer != LinkLayer::ETHERNET {
        return Ok(None);
    }
    let merit = |entry: &&GidEntry| {
        let is_ipv4 = entry.gid.as_ipv6().to_ipv4_mapped().is_some();
        (entry.kind == GidType::ROCE_V2, !entry.gid.is_link_local(), is_ipv4)
    };
    let best = gids.iter().max_by_key(merit);
    Ok(Some(*best.ok_or("the port has no GID: has its network interface an address, and is it up?")?))
}

/// Where a queue pair begins to count its packets: anywhere, so that packets of an earlier connection are not taken for its own.
pub fn random_psn() -> Psn {
    Psn(u32::try_from(RandomState::new().hash_one(0) >> 40).unwrap_or(0))
}
