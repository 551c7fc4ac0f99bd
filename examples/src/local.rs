//! The local side of a connection: a device, its port and its GID.

use std::hash::{BuildHasher, RandomState};

use ibverbs::{
    AccessFlags, ConnectedDuplexTransport, Context, Device, Endpoint, Gid, GidIndex, GidQuery,
    LinkLayer, Mtu, PortAttr, Psn, Qpn, QueuePair, RcPath, device::TransportType, gid::GidEntry,
};

use crate::Result;

/// An open device, with the port and GID that its queue pairs use.
#[derive(Debug)]
pub struct Local {
    /// The open device.
    pub context: Context,
    /// Port number, starting at 1.
    pub port_num: u8,
    /// Attributes of the port.
    pub port: PortAttr,
    /// Source GID. `None` on InfiniBand unless requested, as a subnet needs only LIDs.
    pub gid: Option<GidEntry>,
}

impl Local {
    /// Opens a device, by default the first one, and chooses the GID.
    ///
    /// # Errors
    /// The device, port or GID does not exist, or the device is iWARP, which needs `rdma_cm` to
    /// connect queue pairs.
    pub fn open(device: Option<&str>, port_num: u8, gid_index: Option<u32>) -> Result<Self> {
        let device = match device {
            Some(name) => Device::by_name(name)?,
            None => Device::list()?
                .into_iter()
                .next()
                .ok_or("open an RDMA device: this host has none")?,
        };
        if device.transport() == TransportType::IWARP {
            return Err(format!(
                "use {}: an iWARP device connects queue pairs only through rdma_cm\n\
                 help: use an example based on the rdmacm crate, such as echo or rping",
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

    /// Returns the path parameters of a connection from this port.
    pub fn path(&self, mtu: Mtu, access: AccessFlags) -> RcPath {
        RcPath {
            psn: random_psn(),
            access,
            ..RcPath::new(self.port_num, self.sgid_index(), mtu)
        }
    }

    /// Returns the endpoint of a queue pair on this port, to be sent to the peer.
    pub fn endpoint(&self, qpn: Qpn, psn: Psn) -> Endpoint {
        Endpoint {
            qpn,
            psn,
            lid: self.port.lid,
            gid: self.gid.map_or(Gid::default(), |entry| entry.gid),
        }
    }

    /// Returns the index of the source GID.
    pub fn sgid_index(&self) -> Option<GidIndex> {
        self.gid.map(|entry| entry.index)
    }
}

/// Connects two queue pairs of this process with each other.
///
/// # Errors
/// A state transition of a queue pair fails.
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

/// Returns the GID with the given index. Without an index, chooses the most widely routable GID on
/// RoCE, where a GID is required, and none on InfiniBand.
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
        let available: Vec<String> = gids
            .iter()
            .map(|entry| format!("{} {}", entry.index, entry.gid))
            .collect();
        return Err(format!(
            "use the GID with index {index}: port {port_num} has none; available: {}",
            available.join(", ")
        )
        .into());
    };
    Ok(Some(*found))
}

/// Returns a random initial packet sequence number, so that late packets of an earlier connection
/// are not accepted by a new one.
pub fn random_psn() -> Psn {
    Psn(u32::try_from(RandomState::new().hash_one(0) >> 40).unwrap_or(0))
}
