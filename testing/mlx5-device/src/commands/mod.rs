//! Commands of the driver: a table from the opcode to the function that executes it.

// All functions of the table have the same type.
#![allow(clippy::unnecessary_wraps)]

mod completion_queues;
mod doorbells;
mod events;
mod keys;
mod mads;
mod objects;
mod ports;
mod queue_pairs;
mod registers;
pub(crate) mod send_queues;
mod setup;
mod shared_receive_queues;

use nic_model::engine::{Buffer, State};

use crate::adapter::{Adapter, Kind, Phase};
use crate::event_queue::LOG_ADAPTER_PAGE;
use crate::guest_memory::GuestMemory;
use crate::layout::structures;
use crate::status::{Failure, Status, ensure};

structures! {
    /// Fields at the begin of each input.
    header_in {
        OPCODE = 0x0, 16;
        OP_MOD = 0x30, 16;
    }

    /// Fields at the begin of each output.
    header_out {
        STATUS = 0x0, 8;
        SYNDROME = 0x20, 32;
    }
}

/// Byte offset of the list of pages in the inputs that have one.
const PAGES: usize = 0x110;

/// Executes a command: reads the input and sets fields of the output, which is zero before.
type Execute = fn(&mut Adapter, &[u8], &mut [u8]) -> Result<(), Failure>;

/// A command that the adapter knows.
struct Entry {
    opcode: u16,
    name: &'static str,
    /// The least progress of the driver in starting the adapter.
    phase: Phase,
    /// The least lengths of the input and of the output in bytes.
    lengths: (usize, usize),
    execute: Execute,
}

/// Makes a row of [`COMMANDS`].
const fn row(
    opcode: u16,
    name: &'static str,
    phase: Phase,
    lengths: (usize, usize),
    execute: Execute,
) -> Entry {
    Entry {
        opcode,
        name,
        phase,
        lengths,
        execute,
    }
}

use Phase::{Disabled, Enabled, Initialized};

/// Functions of a row for a kind of objects, or for a state of queue pairs.
macro_rules! create {
    ($kind:ident) => {
        |adapter, input, output| objects::create(Kind::$kind, adapter, input, output)
    };
}
macro_rules! destroy {
    ($kind:ident) => {
        |adapter, input, _| objects::destroy(Kind::$kind, adapter, input)
    };
}
macro_rules! modify_qp {
    ($state:ident) => {
        |adapter, input, output| queue_pairs::modify(State::$state, adapter, input, output)
    };
}

/// All commands. Others fail with the status "bad operation".
#[rustfmt::skip]
const COMMANDS: &[Entry] = &[
    row(0x100, "QUERY_HCA_CAP", Enabled, (0x10, 0x1010), setup::query_capabilities),
    row(0x101, "QUERY_ADAPTER", Enabled, (0x10, 0x110), setup::query_adapter),
    row(0x102, "INIT_HCA", Enabled, (0x10, 0x10), setup::init),
    row(0x103, "TEARDOWN_HCA", Initialized, (0x10, 0x10), setup::teardown),
    row(0x104, "ENABLE_HCA", Disabled, (0x10, 0xc), setup::enable),
    row(0x105, "DISABLE_HCA", Enabled, (0x10, 0xc), setup::disable),
    row(0x107, "QUERY_PAGES", Enabled, (0x10, 0x10), setup::query_pages),
    row(0x108, "MANAGE_PAGES", Enabled, (0x10, 0x10), setup::manage_pages),
    row(0x109, "SET_HCA_CAP", Enabled, (0x1010, 0x10), setup::set_capabilities),
    row(0x10a, "QUERY_ISSI", Enabled, (0x10, 0x70), setup::query_issi),
    row(0x10b, "SET_ISSI", Enabled, (0x10, 0x10), setup::set_issi),
    row(0x10d, "SET_DRIVER_VERSION", Initialized, (0x50, 0x10), setup::set_driver_version),
    row(0x200, "CREATE_MKEY", Initialized, (0x110, 0x10), keys::create),
    row(0x202, "DESTROY_MKEY", Initialized, (0x10, 0x10), keys::destroy),
    row(0x301, "CREATE_EQ", Initialized, (0x118, 0x10), events::create),
    row(0x302, "DESTROY_EQ", Initialized, (0x10, 0x10), events::destroy),
    row(0x400, "CREATE_CQ", Initialized, (0x118, 0x10), completion_queues::create),
    row(0x401, "DESTROY_CQ", Initialized, (0x10, 0x10), completion_queues::destroy),
    row(0x403, "MODIFY_CQ", Initialized, (0x110, 0x10), completion_queues::modify),
    row(0x500, "CREATE_QP", Initialized, (0x110, 0x10), queue_pairs::create),
    row(0x501, "DESTROY_QP", Initialized, (0x10, 0x10), queue_pairs::destroy),
    row(0x502, "RST2INIT_QP", Initialized, (0x110, 0x10), modify_qp!(Init)),
    row(0x503, "INIT2RTR_QP", Initialized, (0x110, 0x10), modify_qp!(ReadyToReceive)),
    row(0x504, "RTR2RTS_QP", Initialized, (0x110, 0x10), modify_qp!(ReadyToSend)),
    row(0x505, "RTS2RTS_QP", Initialized, (0x110, 0x10), modify_qp!(ReadyToSend)),
    row(0x507, "2ERR_QP", Initialized, (0x10, 0x10), modify_qp!(Error)),
    row(0x50a, "2RST_QP", Initialized, (0x10, 0x10), modify_qp!(Reset)),
    row(0x50b, "QUERY_QP", Initialized, (0x10, 0x110), queue_pairs::query),
    row(0x50d, "MAD_IFC", Initialized, (0x110, 0x110), mads::answer),
    row(0x50e, "INIT2INIT_QP", Initialized, (0x110, 0x10), modify_qp!(Init)),
    row(0x705, "CREATE_XRC_SRQ", Initialized, (0x110, 0x10), shared_receive_queues::create_xrc),
    row(0x706, "DESTROY_XRC_SRQ", Initialized, (0x10, 0x10), shared_receive_queues::destroy),
    row(0x707, "QUERY_XRC_SRQ", Initialized, (0x10, 0x50), shared_receive_queues::query_xrc),
    row(0x708, "ARM_XRC_SRQ", Initialized, (0x10, 0x10), shared_receive_queues::arm_xrc),
    row(0x762, "QUERY_HCA_VPORT_CONTEXT", Initialized, (0x10, 0x210), ports::query_context),
    row(0x763, "MODIFY_HCA_VPORT_CONTEXT", Initialized, (0x210, 0x10), ports::modify_context),
    row(0x764, "QUERY_HCA_VPORT_GID", Initialized, (0x10, 0x20), ports::query_gid),
    row(0x765, "QUERY_HCA_VPORT_PKEY", Initialized, (0x10, 0x14), ports::query_pkey),
    row(0x770, "QUERY_VPORT_COUNTER", Initialized, (0x20, 0x210), ports::query_counters),
    row(0x771, "ALLOC_Q_COUNTER", Initialized, (0x10, 0x10), create!(CounterSet)),
    row(0x772, "DEALLOC_Q_COUNTER", Initialized, (0x10, 0x10), destroy!(CounterSet)),
    row(0x773, "QUERY_Q_COUNTER", Initialized, (0x20, 0x100), objects::query_counters),
    row(0x800, "ALLOC_PD", Initialized, (0x10, 0x10), create!(ProtectionDomain)),
    row(0x801, "DEALLOC_PD", Initialized, (0x10, 0x10), destroy!(ProtectionDomain)),
    row(0x802, "ALLOC_UAR", Initialized, (0x10, 0x10), doorbells::alloc),
    row(0x803, "DEALLOC_UAR", Initialized, (0x10, 0x10), doorbells::dealloc),
    row(0x805, "ACCESS_REG", Enabled, (0x10, 0x10), registers::access),
    row(0x806, "ATTACH_TO_MCG", Initialized, (0x20, 0x10), |adapter, input, _| queue_pairs::join(true, adapter, input)),
    row(0x807, "DETACH_FROM_MCG", Initialized, (0x20, 0x10), |adapter, input, _| queue_pairs::join(false, adapter, input)),
    row(0x80e, "ALLOC_XRCD", Initialized, (0x10, 0x10), create!(XrcDomain)),
    row(0x80f, "DEALLOC_XRCD", Initialized, (0x10, 0x10), destroy!(XrcDomain)),
    row(0x816, "ALLOC_TRANSPORT_DOMAIN", Initialized, (0x10, 0x10), create!(TransportDomain)),
    row(0x817, "DEALLOC_TRANSPORT_DOMAIN", Initialized, (0x10, 0x10), destroy!(TransportDomain)),
    row(0x904, "CREATE_SQ", Initialized, (0x110, 0x10), create!(SendQueue)),
    row(0x905, "MODIFY_SQ", Initialized, (0x20, 0x10), send_queues::modify),
    row(0x906, "DESTROY_SQ", Initialized, (0x10, 0x10), destroy!(SendQueue)),
    row(0x90c, "CREATE_RMP", Initialized, (0x110, 0x10), shared_receive_queues::create),
    row(0x90d, "MODIFY_RMP", Initialized, (0x110, 0x10), shared_receive_queues::modify),
    row(0x90e, "DESTROY_RMP", Initialized, (0x10, 0x10), shared_receive_queues::destroy),
    row(0x90f, "QUERY_RMP", Initialized, (0x10, 0x110), shared_receive_queues::query),
];

/// Executes a command and returns its output. Prints the command and its result.
pub(crate) fn execute(adapter: &mut Adapter, input: &[u8], length: usize) -> Vec<u8> {
    let opcode = u16::try_from(header_in::OPCODE.get(input)).expect("the field has 16 bits");
    let mut output = vec![0; length];
    let entry = COMMANDS.iter().find(|entry| entry.opcode == opcode);
    let result = match entry {
        None => Err(Failure::new(
            Status::BadOperation,
            "the adapter does not know the command",
        )),
        Some(entry) => entry.run(adapter, input, &mut output),
    };
    let name = entry.map_or("?", |entry| entry.name);
    let operation = header_in::OP_MOD.get(input);
    let (inputs, outputs) = (input.len(), output.len());
    print!("{opcode:#05x} {name}({operation:#x}) {inputs}/{outputs} B: ");
    match result {
        Ok(()) => println!("ok"),
        Err(failure) => {
            output.fill(0);
            header_out::STATUS.set(&mut output, failure.status as u64);
            header_out::SYNDROME.set(&mut output, u64::from(failure.syndrome()));
            println!(
                "{:?}, syndrome {:#x}: {}",
                failure.status,
                failure.syndrome(),
                failure.reason
            );
            println!("    input {:02x?}", &input[..input.len().min(64)]);
        }
    }
    output
}

impl Entry {
    fn run(&self, adapter: &mut Adapter, input: &[u8], output: &mut [u8]) -> Result<(), Failure> {
        let (least_input, least_output) = self.lengths;
        let phase = adapter.objects.phase;
        ensure(
            phase >= self.phase,
            Status::BadSystemState,
            "the adapter is not started so far",
        )?;
        ensure(
            input.len() >= least_input,
            Status::BadInputLength,
            "the input is too short",
        )?;
        ensure(
            output.len() >= least_output,
            Status::BadOutputLength,
            "the output is too short",
        )?;
        (self.execute)(adapter, input, output)
    }
}

/// Returns the addresses in a list of pages.
fn pages(list: &[u8]) -> impl Iterator<Item = u64> {
    list.chunks_exact(8)
        .map(|page| u64::from_be_bytes(page.try_into().expect("eight bytes")))
}

/// Returns memory of the guest that begins at an offset in the first page of a list.
fn buffer<'a>(
    memory: &'a GuestMemory,
    list: &[u8],
    log_page_size: u64,
    offset: u64,
    length: u64,
) -> Result<Buffer<'a>, Failure> {
    // The lowest bits of an address are rights.
    const ADDRESS: u64 = !0xfff;
    let page_size = u32::try_from(log_page_size)
        .ok()
        .and_then(|shift| 1_u64.checked_shl(shift))
        .filter(|size| *size >= 4096)
        .ok_or(Failure::new(Status::BadParameter, "unknown size of pages"))?;
    let end = offset.checked_add(length).ok_or(NOT_MEMORY)?;
    let count = end.div_ceil(page_size);
    let addresses: Vec<u64> = pages(list).map(|page| page & ADDRESS).collect();
    let addresses = usize::try_from(count)
        .ok()
        .and_then(|count| addresses.get(..count))
        .ok_or(Failure::new(
            Status::BadInputLength,
            "the list of pages is too short",
        ))?;
    let parts = memory.pages(addresses, page_size).map_err(|_| NOT_MEMORY)?;
    Ok(Buffer { parts, offset })
}

/// Returns the memory of a queue. Its context has the size of the pages in those of the adapter, as
/// a logarithm, and the offset in the first one in units of a 64th of a page.
fn queue_memory<'a>(
    memory: &'a GuestMemory,
    input: &[u8],
    log_pages: u64,
    page_offset: u64,
    length: u64,
) -> Result<Buffer<'a>, Failure> {
    const LARGEST_PAGE: u64 = 40;
    let log_page_size = log_pages + LOG_ADAPTER_PAGE;
    let offset = page_offset << (log_page_size.min(LARGEST_PAGE) - 6);
    buffer(memory, &input[PAGES..], log_page_size, offset, length)
}

/// Returns a doorbell record of the guest.
fn doorbell(memory: &GuestMemory, address: u64) -> Result<Buffer<'_>, Failure> {
    const PAGE: u64 = 4096;
    const LENGTH: u64 = 8;
    ensure(
        address.is_multiple_of(LENGTH),
        Status::BadParameter,
        "a doorbell record is not aligned",
    )?;
    let page = address & !(PAGE - 1);
    Ok(Buffer {
        parts: memory.pages(&[page], PAGE).map_err(|_| NOT_MEMORY)?,
        offset: address - page,
    })
}

const NOT_MEMORY: Failure =
    Failure::new(Status::BadParameter, "a page is not in the guest's memory");

#[cfg(test)]
mod tests;
