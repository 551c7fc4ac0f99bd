//! Commands of the driver: a table from the opcode to the function that executes it.

mod doorbells;
mod events;
mod registers;
mod setup;

use crate::adapter::{Adapter, Phase};
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

/// Executes a command: reads the input and sets fields of the output, which is zero before.
type Execute = fn(&mut Adapter, &[u8], &mut [u8]) -> Result<(), Failure>;

/// A command that the adapter knows.
struct Entry {
    opcode: u16,
    name: &'static str,
    /// How far the driver must have started the adapter.
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
    row(0x301, "CREATE_EQ", Initialized, (0x118, 0x10), events::create),
    row(0x302, "DESTROY_EQ", Initialized, (0x10, 0x10), events::destroy),
    row(0x303, "QUERY_EQ", Initialized, (0x10, 0x50), events::query),
    row(0x802, "ALLOC_UAR", Initialized, (0x10, 0x10), doorbells::alloc),
    row(0x803, "DEALLOC_UAR", Initialized, (0x10, 0x10), doorbells::dealloc),
    row(0x805, "ACCESS_REG", Enabled, (0x10, 0x10), registers::access),
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

#[cfg(test)]
mod tests;
