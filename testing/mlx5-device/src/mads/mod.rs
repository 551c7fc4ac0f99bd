//! Management datagrams that the adapter answers itself, as firmware does: performance management
//! of the port, and the subnet administrator.
//!
//! The driver would answer performance queries without a header (`process_pma_cmd` in `mad.c` of
//! `mlx5_ib`), so those of the network cannot be meant for it.

mod administrator;
mod performance;

use nic_model::engine::Counters;

use crate::layout::structures;

structures! {
    /// The header of a datagram. Offsets are those of `libibmad/src/fields.c` of rdma-core.
    mad {
        CLASS = 0x8, 8;
        METHOD = 0x18, 8;
        STATUS = 0x20, 16;
        ATTRIBUTE = 0x80, 16;
    }

    /// The begin of the attribute that describes the agent of a class.
    class_port_info {
        BASE_VERSION = 0, 8;
        CLASS_VERSION = 8, 8;
        CAPABILITY_MASK = 16, 16;
    }
}

/// Bytes of a datagram.
pub(crate) const SIZE: usize = 256;
pub(crate) const GET: u64 = 0x01;
const SET: u64 = 0x02;
const DELETE: u64 = 0x15;
/// Flag of the methods that are responses.
pub(crate) const RESPONSE: u64 = 0x80;
/// Status of a datagram whose method does not exist for its attribute.
pub(crate) const UNSUPPORTED: u64 = 0xc;
/// The attribute that describes the agent, in all classes.
const CLASS_PORT_INFO: u64 = 0x1;

/// Answers requests to the adapter with a number. Others are for the agents of the driver.
pub(crate) fn answer(number: u32, counters: &Counters, request: &[u8]) -> Option<Vec<u8>> {
    const ADMINISTRATION: u64 = 0x03;
    const PERFORMANCE: u64 = 0x04;
    if request.len() != SIZE {
        return None;
    }
    let mut answer = request.to_vec();
    let (method, attribute) = (mad::METHOD.get(request), mad::ATTRIBUTE.get(request));
    let status = match (mad::CLASS.get(request), method) {
        (ADMINISTRATION, GET | SET | DELETE) => administrator::answer(attribute, &mut answer),
        (PERFORMANCE, GET | SET) => performance::answer(method, attribute, counters, &mut answer),
        _ => return None,
    };
    if let Err(status) = status {
        println!("{number}: datagram {method:#x} {attribute:#x}: status {status:#x}");
        mad::STATUS.set(&mut answer, status);
    }
    // The response to a change is that to a query.
    let response = if method == SET { GET } else { method } | RESPONSE;
    mad::METHOD.set(&mut answer, response);
    Some(answer)
}

#[cfg(test)]
mod tests;
