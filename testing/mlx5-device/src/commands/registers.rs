//! Registers: structures that the driver reads or writes by their number.

use super::header_in;
use crate::adapter::Adapter;
use crate::initialization_segment::FIRMWARE;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    access_register_in {
        REGISTER_ID = 0x50, 16;
    }

    /// Registers of the management that the adapter has.
    mcam_reg {
        ACCESS_REG_GROUP = 0x18, 8;
        ACCESS_REGS_MCQI = 0x5e, 1;
        ACCESS_REGS_MCQS = 0x5f, 1;
    }

    /// State of a component of the firmware.
    mcqs_reg {
        LAST_INDEX_FLAG = 0x0, 1;
        COMPONENT_INDEX = 0x10, 16;
        IDENTIFIER = 0x30, 16;
    }

    /// Information on a component of the firmware. The data follows.
    mcqi_reg {
        COMPONENT_INDEX = 0x10, 16;
        INFO_TYPE = 0x5b, 5;
    }

    mcqi_version {
        VERSION = 0x20, 32;
    }

    /// Width and speed of the port.
    ptys_reg {
        IB_LINK_WIDTH_OPER = 0x140, 16;
        IB_PROTO_OPER = 0x150, 16;
    }

    pmtu_reg {
        MAX_MTU = 0x20, 16;
        ADMIN_MTU = 0x40, 16;
        OPER_MTU = 0x60, 16;
    }

    /// Counters of errors of the port, which follow 8 bytes.
    ib_port_cntrs_grp_data_layout {
        LINK_DOWNED_COUNTER = 0x18, 8;
    }

    /// Virtual lanes of the port.
    pvlc_reg {
        VL_HW_CAP = 0x3c, 4;
    }
}

/// Reads or writes a register in the output, which has a copy of the input.
type Access = fn(&Adapter, &mut [u8]) -> Result<(), Failure>;

const WRITE: u64 = 0;
const READ: u64 = 1;

/// The registers: number, operation, length in bytes and function.
#[rustfmt::skip]
const REGISTERS: &[(u64, u64, usize, Access)] = &[
    // The byte order of the processor. The adapter does not need it.
    (0x7004, WRITE, 0x10, |_, _| Ok(())),
    (0x5003, READ, 0x10, read_pmtu),
    (0x5004, READ, 0x40, read_ptys),
    (0x5008, READ, 0x100, read_ppcnt),
    (0x500f, READ, 0x10, read_pvlc),
    (0x6001, READ, NODE_DESCRIPTION.len(), read_node_description),
    (0x907f, READ, 0x48, read_mcam),
    (0x9060, READ, 0x10, read_mcqs),
    (0x9061, READ, MCQI_DATA + 0x7c, read_mcqi),
];

/// Byte offset of the register in the input and in the output.
const BODY: usize = 0x10;
pub(super) const NODE_DESCRIPTION: &[u8] = b"mlx5-device";
/// Byte offset of the data in `mcqi_reg`.
const MCQI_DATA: usize = 0x18;

pub(super) fn access(
    adapter: &mut Adapter,
    input: &[u8],
    output: &mut [u8],
) -> Result<(), Failure> {
    let (number, operation) = (
        access_register_in::REGISTER_ID.get(input),
        header_in::OP_MOD.get(input),
    );
    let row = REGISTERS
        .iter()
        .find(|row| (row.0, row.1) == (number, operation));
    let Some((_, _, length, access)) = row else {
        println!("register {number:#x}, operation {operation}: not known");
        return Err(Failure::new(
            Status::BadParameter,
            "the adapter does not know the register",
        ));
    };
    let register = &mut output[BODY..];
    ensure(
        register.len() >= *length,
        Status::BadOutputLength,
        "the register is longer",
    )?;
    let given = (input.len() - BODY).min(register.len());
    register[..given].copy_from_slice(&input[BODY..BODY + given]);
    access(adapter, register)
}

fn read_pmtu(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    for field in [pmtu_reg::MAX_MTU, pmtu_reg::ADMIN_MTU, pmtu_reg::OPER_MTU] {
        field.set(register, 4096);
    }
    Ok(())
}

fn read_ptys(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    const FOUR_LANES: u64 = 1 << 2;
    const EDR: u64 = 1 << 5;
    ptys_reg::IB_LINK_WIDTH_OPER.set(register, FOUR_LANES);
    ptys_reg::IB_PROTO_OPER.set(register, EDR);
    Ok(())
}

fn read_ppcnt(adapter: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    const COUNTER_SET: usize = 8;
    let link_downed = adapter.engine.counters().link_downed.min(0xff);
    ib_port_cntrs_grp_data_layout::LINK_DOWNED_COUNTER
        .at(COUNTER_SET)
        .set(register, link_downed);
    Ok(())
}

fn read_pvlc(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    const LANES_0_TO_3: u64 = 4;
    pvlc_reg::VL_HW_CAP.set(register, LANES_0_TO_3);
    Ok(())
}

fn read_node_description(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    register[..NODE_DESCRIPTION.len()].copy_from_slice(NODE_DESCRIPTION);
    Ok(())
}

fn read_mcam(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    if mcam_reg::ACCESS_REG_GROUP.get(register) == 0 {
        mcam_reg::ACCESS_REGS_MCQI.set(register, 1);
        mcam_reg::ACCESS_REGS_MCQS.set(register, 1);
    }
    Ok(())
}

/// The firmware has one component, the image that the adapter boots.
fn read_mcqs(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    const BOOT_IMAGE: u64 = 1;
    let index = mcqs_reg::COMPONENT_INDEX.get(register);
    ensure(
        index == 0,
        Status::BadParameter,
        "the firmware has one component",
    )?;
    mcqs_reg::IDENTIFIER.set(register, BOOT_IMAGE);
    mcqs_reg::LAST_INDEX_FLAG.set(register, 1);
    Ok(())
}

fn read_mcqi(_: &Adapter, register: &mut [u8]) -> Result<(), Failure> {
    const VERSION: u64 = 1;
    let index = mcqi_reg::COMPONENT_INDEX.get(register);
    ensure(
        index == 0,
        Status::BadParameter,
        "the firmware has one component",
    )?;
    let kind = mcqi_reg::INFO_TYPE.get(register);
    ensure(
        kind == VERSION,
        Status::BadParameter,
        "only the version is known",
    )?;
    let [major, minor, subminor] = FIRMWARE;
    let version = major << 24 | minor << 16 | subminor;
    mcqi_version::VERSION.at(MCQI_DATA).set(register, version);
    Ok(())
}
