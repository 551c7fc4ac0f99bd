//! Management datagrams for the port itself, which the driver passes with a command.
//!
//! Offsets are those of `libibmad/src/fields.c` of rdma-core.

use super::ports;
use super::registers::NODE_DESCRIPTION;
use crate::adapter::Adapter;
use crate::addresses::SUBNET_PREFIX;
use crate::config_space;
use crate::layout::{Field, structures};
use crate::mads::{GET, RESPONSE, UNSUPPORTED, mad};
use crate::status::Failure;

structures! {
    node_info {
        BASE_VERSION = 0, 8;
        CLASS_VERSION = 8, 8;
        NODE_TYPE = 16, 8;
        PORTS = 24, 8;
        SYSTEM_GUID = 32, 64;
        NODE_GUID = 96, 64;
        PORT_GUID = 160, 64;
        PARTITIONS = 224, 16;
        DEVICE_ID = 240, 16;
        LOCAL_PORT = 288, 8;
        VENDOR_ID = 296, 24;
    }

    port_info {
        GID_PREFIX = 64, 64;
        LID = 128, 16;
        SM_LID = 144, 16;
        CAPABILITIES = 160, 32;
        LOCAL_PORT = 224, 8;
        WIDTH_ENABLED = 232, 8;
        WIDTH_SUPPORTED = 240, 8;
        WIDTH_ACTIVE = 248, 8;
        SPEED_SUPPORTED = 256, 4;
        STATE = 260, 4;
        PHYSICAL_STATE = 264, 4;
        SPEED_ACTIVE = 280, 4;
        SPEED_ENABLED = 284, 4;
        NEIGHBOR_MTU = 288, 4;
        LANES = 296, 4;
        MTU = 332, 4;
        LANES_ACTIVE = 344, 4;
        GUIDS = 400, 8;
        SUBNET_TIMEOUT = 411, 5;
        RESPONSE_TIME = 419, 5;
    }
}

/// Byte range of the datagram in the input and in the output, and offset of the attribute in it.
const DATAGRAM: std::ops::Range<usize> = 0x10..0x110;
const DATA: usize = 64;

/// Answers a datagram. Only the attributes of the subnet management that tools read are known.
pub(super) fn answer(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let answer = &mut output[DATAGRAM];
    answer.copy_from_slice(&input[DATAGRAM]);
    let method = mad::METHOD.get(answer);
    mad::METHOD.set(answer, GET | RESPONSE);
    let data = &mut answer[DATA..2 * DATA];
    let known = match (method, mad::ATTRIBUTE.get(&input[DATAGRAM])) {
        (GET, 0x10) => {
            data.fill(0);
            data[..NODE_DESCRIPTION.len()].copy_from_slice(NODE_DESCRIPTION);
            true
        }
        (GET, 0x11) => set(data, &node_info(adapter)),
        (GET, 0x15) => set(data, &port_info(adapter)),
        _ => false,
    };
    if !known {
        mad::STATUS.set(answer, UNSUPPORTED);
    }
    Ok(())
}

/// Sets the fields of an attribute, and the rest of it to zero.
fn set(data: &mut [u8], fields: &[(Field, u64)]) -> bool {
    data.fill(0);
    for (field, value) in fields {
        field.set(data, *value);
    }
    true
}

fn node_info(adapter: &Adapter) -> [(Field, u64); 11] {
    const CHANNEL_ADAPTER: u64 = 1;
    const VENDOR: u64 = 0x2c9;
    let guid = ports::guid(adapter);
    [
        (node_info::BASE_VERSION, 1),
        (node_info::CLASS_VERSION, 1),
        (node_info::NODE_TYPE, CHANNEL_ADAPTER),
        (node_info::PORTS, 1),
        (node_info::SYSTEM_GUID, guid),
        (node_info::NODE_GUID, guid),
        (node_info::PORT_GUID, guid),
        (node_info::PARTITIONS, 128),
        (node_info::DEVICE_ID, u64::from(config_space::DEVICE)),
        (node_info::LOCAL_PORT, 1),
        (node_info::VENDOR_ID, VENDOR),
    ]
}

fn port_info(adapter: &Adapter) -> [(Field, u64); 20] {
    const FOUR_LANES: u64 = 2;
    const TEN_GIGABITS: u64 = 4;
    const MTU_4096: u64 = 5;
    const LANES_0_TO_3: u64 = 3;
    let capabilities = u64::from(adapter.objects.port_capabilities);
    let (state, physical_state) = ports::states(adapter);
    [
        (port_info::GID_PREFIX, SUBNET_PREFIX),
        (port_info::LID, u64::from(adapter.engine.number())),
        (port_info::SM_LID, u64::from(adapter.engine.number())),
        (port_info::CAPABILITIES, capabilities),
        (port_info::LOCAL_PORT, 1),
        (port_info::WIDTH_ENABLED, FOUR_LANES),
        (port_info::WIDTH_SUPPORTED, FOUR_LANES),
        (port_info::WIDTH_ACTIVE, FOUR_LANES),
        (port_info::SPEED_SUPPORTED, TEN_GIGABITS),
        (port_info::STATE, state),
        (port_info::PHYSICAL_STATE, physical_state),
        (port_info::SPEED_ACTIVE, TEN_GIGABITS),
        (port_info::SPEED_ENABLED, TEN_GIGABITS),
        (port_info::NEIGHBOR_MTU, MTU_4096),
        (port_info::LANES, LANES_0_TO_3),
        (port_info::MTU, MTU_4096),
        (port_info::LANES_ACTIVE, LANES_0_TO_3),
        (port_info::GUIDS, 8),
        (port_info::SUBNET_TIMEOUT, ports::SUBNET_TIMEOUT),
        (port_info::RESPONSE_TIME, ports::SUBNET_TIMEOUT),
    ]
}
