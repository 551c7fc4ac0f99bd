//! Requests over `NETLINK_RDMA`. The constants are those of `rdma/rdma_netlink.h`.

use std::io;

use netlink_packet_core::DefaultNla;

pub(super) use crate::netlink::{Attributes, Reply};

/// Index of the client `RDMA_NL_NLDEV` in message types.
const NLDEV: u16 = 5;

/// A connection to the kernel.
#[derive(Debug)]
pub(super) struct Netlink(crate::netlink::Netlink);

impl Netlink {
    /// Opens a connection.
    pub(super) fn open() -> io::Result<Self> {
        crate::netlink::Netlink::open(Some(rustix::net::netlink::RDMA)).map(Self)
    }

    /// Requests a list of objects. Returns the attributes of each message of the reply.
    pub(super) fn dump(&mut self, command: u16, attributes: &[DefaultNla]) -> io::Result<Reply> {
        self.0.dump(NLDEV << 10 | command, &attributes)
    }

    /// Requests one object.
    pub(super) fn get(&mut self, command: u16, attributes: &[DefaultNla]) -> io::Result<Reply> {
        self.0.get(NLDEV << 10 | command, &attributes)
    }
}

/// Returns an attribute of type `u32`.
pub(super) fn u32_attribute(kind: u16, value: u32) -> DefaultNla {
    DefaultNla::new(kind, value.to_ne_bytes().to_vec())
}
