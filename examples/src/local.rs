//! This side of a connection: the device, its port, and the GID to be known by.

use std::hash::{BuildHasher, RandomState};

use ibverbs::{
    AccessFlags, ConnectedDuplexTransport, Context, Device, Endpoint, Gid, GidIndex, GidQuery,
    LinkLayer, Mtu, PortAttr, Psn, Qpn, QueuePair, RcPath, device::TransportType, gid::GidEntry,
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
            None => Device::list()?
                .into_iter()
                .next()
                .ok_or("this host has no RDMA device")?,
        };
        if device.transport() == TransportType::IWARP {
            return Err(format!(
                "{} is iWARP, which connects by rdma_cm only: see the rdmacm crate",
                device.name()
            )
            .into());
        }
        let context = device.open()?;
        let port = context.query_port(port_num)?;
        let gid = choose_gid(&context, port_num, gid_index)?;
        Ok(Self {
            context,
            port_num,
            port,
            gid,
        })
    }

    /// The path of a connection from here.
    pub fn path(&self, mtu: Mtu, access: AccessFlags) -> RcPath {
        RcPath {
            psn: random_psn(),
            access,
            ..RcPath::new(self.port_num, self.sgid_index(), mtu)
        }
    }

    /// What to tell the peer of a queue pair here.
    pub fn endpoint(&self, qpn: Qpn, psn: Psn) -> Endpoint {
        Endpoint {
            qpn,
            psn,
            lid: self.port.lid,
            gid: self.gid.map_or(Gid::default(), |entry| entry.gid),
        }
    }

    /// The index of the GID, as a path names it.
    pub fn sgid_index(&self) -> Option<GidIndex> {
        self.gid.map(|entry| entry.index)
    }
}

/// Connects two queue pairs of this process with each other.
///
/// # Errors
/// What the driver refuses.
pub fn connect_pair<T: ConnectedDuplexTransport>(
    path: &RcPath,
    a: &mut QueuePair<T>,
    b: &mut QueuePair<T>,
) -> ibverbs::Result<()> {
    a.init(path)?;
    b.init(path)?;
    a.connect(path, &b.endpoint(path)?)?;
    b.connect(path, &a.endpoint(path)?)
}

/// The GID with the index asked for, or the one that reaches furthest. RoCE always needs one.
fn choose_gid(context: &Context, port_num: u8, index: Option<u32>) -> Result<Option<GidEntry>> {
    let Some(index) = index else {
        let is_roce = context.query_port(port_num)?.link_layer == LinkLayer::ETHERNET;
        let choice = is_roce
            .then(|| context.select_gid(port_num, &GidQuery::default()))
            .transpose()?;
        return Ok(choice.map(|choice| choice.entry));
    };
    let gids = context.gids(port_num)?;
    let Some(found) = gids.iter().find(|entry| u32::from(entry.index) == index) else {
        let there: Vec<String> = gids
            .iter()
            .map(|entry| format!("{} {}", entry.index, entry.gid))
            .collect();
        return Err(format!(
            "the port has no GID with index {index}; it has: {}",
            there.join(", ")
        )
        .into());
    };
    Ok(Some(*found))
}

/// Where a queue pair begins to count its packets: anywhere, so that packets of an earlier
/// connection are not taken for its own.
pub fn random_psn() -> Psn {
    Psn(u32::try_from(RandomState::new().hash_one(0) >> 40).unwrap_or(0))
}
