//! The port: its state, addresses and partition keys.

use crate::adapter::Adapter;
use crate::addresses::{self, DEFAULT_PKEY, SUBNET_PREFIX};
use crate::layout::{Field, structures};
use crate::status::{Failure, Status, ensure};

structures! {
    hca_vport_context {
        FIELD_SELECT = 0x0, 32;
        HAS_SMI = 0x101, 1;
        PORT_PHYSICAL_STATE = 0x110, 4;
        PORT_STATE = 0x118, 4;
        VPORT_STATE = 0x11c, 4;
        SYSTEM_IMAGE_GUID = 0x140, 64;
        PORT_GUID = 0x180, 64;
        NODE_GUID = 0x1c0, 64;
        CAP_MASK1 = 0x200, 32;
        CAP_MASK1_FIELD_SELECT = 0x220, 32;
        LID = 0x300, 16;
        SUBNET_TIMEOUT = 0x31b, 5;
        SM_LID = 0x320, 16;
    }

    query_hca_vport_gid_in {
        GID_INDEX = 0x70, 16;
    }

    query_hca_vport_gid_out {
        GIDS_NUM = 0x60, 16;
    }

    query_hca_vport_pkey_in {
        PKEY_INDEX = 0x70, 16;
    }

    traffic_counter {
        PACKETS = 0x0, 64;
        OCTETS = 0x40, 64;
    }
}

/// Byte offset of the body in outputs.
const BODY: usize = 0x10;
/// Byte offsets of counters in `query_vport_counter_out`.
const RECEIVED_IB_UNICAST: usize = 0x30;
const TRANSMITTED_IB_UNICAST: usize = 0x40;
const RECEIVED_IB_MULTICAST: usize = 0x50;
const TRANSMITTED_IB_MULTICAST: usize = 0x60;
/// Code of the largest time for a datagram through the subnet.
pub(super) const SUBNET_TIMEOUT: u64 = 18;
/// Capabilities of the port that the driver sets for its agents: subnet management, communication
/// management, SNMP, device management and vendor classes.
const CHANGEABLE: u32 = 1 << 1 | 1 << 16 | 1 << 17 | 1 << 19 | 1 << 20;
/// Index that asks for the whole table.
const WHOLE_TABLE: u64 = 0xffff;

/// Returns the GUID of the adapter.
pub(super) fn guid(adapter: &Adapter) -> u64 {
    addresses::guid(adapter.engine.number())
}

/// Returns the state of the port and its physical state.
pub(super) fn states(adapter: &Adapter) -> (u64, u64) {
    const DOWN: u64 = 1;
    const ACTIVE: u64 = 4;
    const POLLING: u64 = 2;
    const LINK_UP: u64 = 5;
    if adapter.engine.is_link_up() {
        (ACTIVE, LINK_UP)
    } else {
        (DOWN, POLLING)
    }
}

pub(super) fn query_context(
    adapter: &mut Adapter,
    _: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    use hca_vport_context as context;
    let guid = guid(adapter);
    let (state, physical_state) = states(adapter);
    for (field, value) in [
        (context::HAS_SMI, 1),
        (context::PORT_PHYSICAL_STATE, physical_state),
        (context::PORT_STATE, state),
        (context::VPORT_STATE, state),
        (context::SYSTEM_IMAGE_GUID, guid),
        (context::PORT_GUID, guid),
        (context::NODE_GUID, guid),
        (
            context::CAP_MASK1,
            u64::from(adapter.objects.port_capabilities),
        ),
        (context::CAP_MASK1_FIELD_SELECT, u64::from(CHANGEABLE)),
        (context::LID, u64::from(adapter.engine.number())),
        (context::SUBNET_TIMEOUT, SUBNET_TIMEOUT),
        // Each port is its own subnet administrator.
        (context::SM_LID, u64::from(adapter.engine.number())),
    ] {
        field.at(BODY).set(output, value);
    }
    Ok(())
}

/// Sets the capabilities of the port that the driver selects. Nothing else can be changed.
pub(super) fn modify_context(
    adapter: &mut Adapter,
    input: &[u8],
    _: &mut [u8],
) -> Result<(), Failure> {
    use hca_vport_context as context;
    let get = |field: Field| field.at(BODY).get32(input);
    let (selected, value) = (
        get(context::CAP_MASK1_FIELD_SELECT),
        get(context::CAP_MASK1),
    );
    let known = get(context::FIELD_SELECT) == 0 && selected & !CHANGEABLE == 0;
    ensure(
        known,
        Status::BadParameter,
        "the driver cannot change this of the port",
    )?;
    let capabilities = &mut adapter.objects.port_capabilities;
    *capabilities = *capabilities & !selected | value & selected;
    Ok(())
}

/// Returns entries of the table of addresses. All have the prefix of the subnet, and only the first
/// one has an interface.
pub(super) fn query_gid(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let guid = guid(adapter);
    let index = query_hca_vport_gid_in::GID_INDEX.get(input);
    let entries = output[BODY..].chunks_exact_mut(16);
    let count = entries.len() as u64;
    for (number, entry) in entries.enumerate() {
        entry[..8].copy_from_slice(&SUBNET_PREFIX.to_be_bytes());
        if number == 0 && matches!(index, 0 | WHOLE_TABLE) {
            entry[8..].copy_from_slice(&guid.to_be_bytes());
        }
    }
    query_hca_vport_gid_out::GIDS_NUM.set(output, count);
    Ok(())
}

/// Returns entries of the table of partition keys. Only the first one is in use.
pub(super) fn query_pkey(_: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    let index = query_hca_vport_pkey_in::PKEY_INDEX.get(input);
    if matches!(index, 0 | WHOLE_TABLE) {
        output[BODY + 2..BODY + 4].copy_from_slice(&DEFAULT_PKEY.to_be_bytes());
    }
    Ok(())
}

/// Returns the counters of the port's traffic.
pub(super) fn query_counters(
    adapter: &mut Adapter,
    _: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let counters = adapter.engine.counters();
    for (offset, traffic) in [
        (RECEIVED_IB_UNICAST, counters.received),
        (TRANSMITTED_IB_UNICAST, counters.sent),
        (RECEIVED_IB_MULTICAST, counters.received_in_groups),
        (TRANSMITTED_IB_MULTICAST, counters.sent_to_groups),
    ] {
        traffic_counter::PACKETS
            .at(offset)
            .set(output, traffic.packets);
        traffic_counter::OCTETS
            .at(offset)
            .set(output, traffic.bytes);
    }
    Ok(())
}
