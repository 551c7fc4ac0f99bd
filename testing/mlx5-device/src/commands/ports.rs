//! The port: its state, addresses and partition keys.

use crate::adapter::Adapter;
use crate::layout::structures;
use crate::status::Failure;

structures! {
    hca_vport_context {
        HAS_SMI = 0x101, 1;
        PORT_PHYSICAL_STATE = 0x110, 4;
        PORT_STATE = 0x118, 4;
        VPORT_STATE = 0x11c, 4;
        SYSTEM_IMAGE_GUID = 0x140, 64;
        PORT_GUID = 0x180, 64;
        NODE_GUID = 0x1c0, 64;
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

    query_vport_state_out {
        ADMIN_STATE = 0x78, 4;
        STATE = 0x7c, 4;
    }
}

/// Byte offset of the body in outputs.
const BODY: usize = 0x10;
/// The GUID of `testing/nic-model`.
const GUID: u64 = 0x0200_5eff_fe10_0001;
const SUBNET_PREFIX: u64 = 0xfe80_0000_0000_0000;
const DEFAULT_PKEY: u16 = 0xffff;
const PHYSICAL_LINK_UP: u64 = 5;
const ACTIVE: u64 = 4;
const LOCAL_IDENTIFIER: u64 = 1;
/// Index that asks for the whole table.
const WHOLE_TABLE: u64 = 0xffff;

pub(super) fn query_context(_: &mut Adapter, _: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    use hca_vport_context as context;
    for (field, value) in [
        (context::HAS_SMI, 1),
        (context::PORT_PHYSICAL_STATE, PHYSICAL_LINK_UP),
        (context::PORT_STATE, ACTIVE),
        (context::VPORT_STATE, ACTIVE),
        (context::SYSTEM_IMAGE_GUID, GUID),
        (context::PORT_GUID, GUID),
        (context::NODE_GUID, GUID),
        (context::LID, LOCAL_IDENTIFIER),
        (context::SUBNET_TIMEOUT, 18),
        (context::SM_LID, LOCAL_IDENTIFIER),
    ] {
        field.at(BODY).set(output, value);
    }
    Ok(())
}

pub(super) fn query_gid(_: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    let index = query_hca_vport_gid_in::GID_INDEX.get(input);
    let first = BODY..BODY + 16;
    query_hca_vport_gid_out::GIDS_NUM.set(output, 1);
    if matches!(index, 0 | WHOLE_TABLE) {
        output[first.start..first.start + 8].copy_from_slice(&SUBNET_PREFIX.to_be_bytes());
        output[first.start + 8..first.end].copy_from_slice(&GUID.to_be_bytes());
    }
    Ok(())
}

pub(super) fn query_pkey(_: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    let index = query_hca_vport_pkey_in::PKEY_INDEX.get(input);
    if matches!(index, 0 | WHOLE_TABLE) {
        output[BODY + 2..BODY + 4].copy_from_slice(&DEFAULT_PKEY.to_be_bytes());
    }
    Ok(())
}

pub(super) fn query_state(_: &mut Adapter, _: &[u8], output: &mut [u8]) -> Result<(), Failure> {
    const UP: u64 = 1;
    query_vport_state_out::ADMIN_STATE.set(output, UP);
    query_vport_state_out::STATE.set(output, UP);
    Ok(())
}
