//! Queries of the addresses and the path of an identifier.

use zerocopy::{FromZeros, IntoBytes};

use super::commands::Command;
use super::{Cm, Id};
use crate::abi::rdma_cm::{OnId, PATH_FLAGS, PathData, QueryAddrResp, QueryPathResp};
use crate::errno::Result;

/// Port of the device.
pub(super) const PORT: u8 = 1;
/// Path MTU of 4096 bytes, as `enum ib_mtu`.
pub(super) const MTU: u8 = 5;
/// Hop limit of a route in this host.
pub(super) const HOP_LIMIT: u8 = 64;
/// 100 Gb/s, as `enum ib_rate`.
const RATE: u8 = 16;
const PKEY: u16 = 0xffff;
/// Selects exactly the value of a field (`IB_SA_EQ`).
const EXACTLY: u8 = 2;
/// Time that a packet takes at most (`CMA_IBOE_PACKET_LIFETIME`), in the units of the timeouts.
const PACKET_LIFETIME: u8 = 16;

impl Id {
    /// Returns the life time of packets on the route. The timeout of acknowledgements is 1 larger.
    pub(super) fn packet_life_time(&self) -> u8 {
        match self.ack_timeout {
            None | Some(0) => PACKET_LIFETIME,
            Some(timeout) => timeout - 1,
        }
    }

    fn service_id(&self, address: super::Address) -> u64 {
        let port = address.ip().map_or(0, |ip| ip.port());
        u64::from(self.port_space) << 16 | u64::from(port)
    }
}

impl Cm {
    /// Returns a response with the fields of the device (`ucma_query_device_addr`).
    fn addr_resp(&mut self, command: &Command, id: u32) -> Result<(QueryAddrResp, &mut Id)> {
        let guid = self.guid;
        let id = self.id(command.file(), id)?;
        let mut response = QueryAddrResp::new_zeroed();
        if id.has_device {
            response.node_guid = guid;
            response.port_num = PORT;
        }
        Ok((response, id))
    }

    pub(super) fn query_addr(&mut self, command: &Command, query: &OnId) -> Result<()> {
        let (mut response, id) = self.addr_resp(command, query.id)?;
        let size = |address: super::Address| u16::try_from(address.size()).expect("small");
        response.src_size = size(id.source);
        response.src_addr = id.source.to_storage();
        response.dst_size = size(id.destination);
        response.dst_addr = id.destination.to_storage();
        respond_addr(command, query, &response)
    }

    pub(super) fn query_gid(&mut self, command: &Command, query: &OnId) -> Result<()> {
        let (mut response, id) = self.addr_resp(command, query.id)?;
        let gid = |address: super::Address| {
            let known = if id.has_device {
                address
            } else {
                super::Address::Unspecified
            };
            known.to_gid_storage(id.service_id(address))
        };
        response.src_addr = gid(id.source);
        response.dst_addr = gid(id.destination);
        // The size of `struct sockaddr_ib`.
        (response.src_size, response.dst_size) = (48, 48);
        respond_addr(command, query, &response)
    }

    pub(super) fn query_path(&mut self, command: &Command, query: &OnId) -> Result<()> {
        let id = self.id(command.file(), query.id)?;
        let mut response = QueryPathResp::new_zeroed();
        let empty = size_of::<QueryPathResp>() - size_of::<PathData>();
        if !id.has_route {
            return command.respond(query.response, &response.as_bytes()[..empty], empty);
        }
        response.num_paths = 1;
        response.path_data = [PathData {
            flags: PATH_FLAGS,
            service_id: id.service_id(id.destination).to_be_bytes(),
            dgid: id.destination.gid(),
            sgid: id.source.gid(),
            flowlabel_hoplimit: u32::from(HOP_LIMIT).to_be_bytes(),
            tclass: id.traffic_class,
            // Usable in both directions.
            reversible_numpath: 1 << 7,
            pkey: PKEY.to_be_bytes(),
            mtu: EXACTLY << 6 | MTU,
            rate: EXACTLY << 6 | RATE,
            packetlifetime: EXACTLY << 6 | id.packet_life_time(),
            ..PathData::new_zeroed()
        }];
        command.respond(query.response, response.as_bytes(), empty)
    }
}

fn respond_addr(command: &Command, query: &OnId, response: &QueryAddrResp) -> Result<()> {
    let old = std::mem::offset_of!(QueryAddrResp, ibdev_index);
    command.respond(query.response, response.as_bytes(), old)
}
