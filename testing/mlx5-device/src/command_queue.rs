//! The command queue: entries in the guest's memory, with the longer part of their input and output
//! in chains of mailboxes.

use std::io;

use crate::guest_memory::GuestMemory;
use crate::initialization_segment::{LOG_QUEUE_SIZE, LOG_QUEUE_STRIDE};
use crate::layout::{Field, structures};

/// Bytes of an entry.
const ENTRY: usize = 1 << LOG_QUEUE_STRIDE;
/// Number of entries, one for each bit of the doorbell.
pub(crate) const ENTRIES: u32 = 1 << LOG_QUEUE_SIZE;
/// Bytes of the input and of the output that are in the entry.
const INLINE: usize = 16;
/// Bytes of data in a mailbox, which is followed by its control fields.
const MAILBOX_DATA: usize = 512;
const MAILBOX: usize = 576;
/// Limit of the input and of the output. The driver's longest command has a page list of 2 GiB.
const MAX_LENGTH: u32 = 8 << 20;
/// The shortest input has an opcode and a modifier, the shortest output a status and a syndrome.
const LEAST_INPUT: u32 = 8;
const LEAST_OUTPUT: u32 = 8;
/// Transport of a command over PCI.
const PCI_TRANSPORT: u64 = 7;
/// Offset of the byte with the delivery status and the ownership.
const STATUS_OWN: u64 = 63;

structures! {
    /// An entry, `struct mlx5_cmd_layout`.
    entry {
        TYPE = 0x0, 8;
        INPUT_LENGTH = 0x20, 32;
        INPUT_MAILBOX = 0x40, 64;
        OUTPUT_MAILBOX = 0x180, 64;
        OUTPUT_LENGTH = 0x1c0, 32;
        TOKEN = 0x1e0, 8;
        OWNERSHIP = 0x1ff, 1;
    }

    /// A mailbox, `struct mlx5_cmd_prot_block`.
    mailbox {
        NEXT = 0x1180, 64;
        BLOCK_NUMBER = 0x11c0, 32;
        TOKEN = 0x11e8, 8;
    }
}

/// Byte offsets of the data in an entry.
const INPUT: usize = 0x10;
const OUTPUT: usize = 0x20;

/// A reason why the adapter does not execute an entry: the status of delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    Token = 0x2,
    BlockNumber = 0x3,
    OutputPointer = 0x4,
    InputPointer = 0x5,
    InputLength = 0x7,
    OutputLength = 0x8,
    Descriptor = 0x10,
}

/// A command that the driver has passed to the adapter.
#[derive(Debug)]
pub(crate) struct Command {
    address: u64,
    entry: [u8; ENTRY],
    /// The input, at least 8 bytes.
    pub(crate) input: Vec<u8>,
    /// The length of the output, at least 8 bytes.
    pub(crate) output_length: usize,
}

/// Reads an entry. Returns `None` if the driver owns it, and the entry's address with an error if
/// it is malformed.
pub(crate) fn read(
    memory: &GuestMemory,
    queue: u64,
    index: u32,
) -> io::Result<Option<Result<Command, (u64, Delivery)>>> {
    let address = queue + (u64::from(index) << LOG_QUEUE_STRIDE);
    let mut entry = [0; ENTRY];
    memory.read(address, &mut entry)?;
    if entry::OWNERSHIP.get(&entry) == 0 {
        return Ok(None);
    }
    Ok(Some(
        decode(memory, address, entry).map_err(|delivery| (address, delivery)),
    ))
}

fn decode(memory: &GuestMemory, address: u64, entry: [u8; ENTRY]) -> Result<Command, Delivery> {
    if entry::TYPE.get(&entry) != PCI_TRANSPORT {
        return Err(Delivery::Descriptor);
    }
    let length = |field: Field, least, error| match field.get32(&entry) {
        length if (least..=MAX_LENGTH).contains(&length) => Ok(length as usize),
        _ => Err(error),
    };
    let input_length = length(entry::INPUT_LENGTH, LEAST_INPUT, Delivery::InputLength)?;
    let output_length = length(entry::OUTPUT_LENGTH, LEAST_OUTPUT, Delivery::OutputLength)?;
    let mut input = entry[INPUT..INPUT + INLINE.min(input_length)].to_vec();
    let first = entry::INPUT_MAILBOX.get(&entry);
    for (mailbox, _) in mailboxes(memory, first, &entry, input_length, Delivery::InputPointer)? {
        let part = (input_length - input.len()).min(MAILBOX_DATA);
        input.extend_from_slice(&mailbox[..part]);
    }
    // The output's mailboxes are checked before the command has an effect.
    let first = entry::OUTPUT_MAILBOX.get(&entry);
    mailboxes(
        memory,
        first,
        &entry,
        output_length,
        Delivery::OutputPointer,
    )?;
    Ok(Command {
        address,
        entry,
        input,
        output_length,
    })
}

/// Reads the chain of mailboxes that holds data of a length, with their addresses.
fn mailboxes(
    memory: &GuestMemory,
    first: u64,
    entry: &[u8; ENTRY],
    length: usize,
    pointer: Delivery,
) -> Result<Vec<([u8; MAILBOX], u64)>, Delivery> {
    let count = length.saturating_sub(INLINE).div_ceil(MAILBOX_DATA);
    let mut chain = Vec::with_capacity(count);
    let mut address = first;
    for number in 0..count as u64 {
        let mut mailbox = [0; MAILBOX];
        if address == 0 || !address.is_multiple_of(512) {
            return Err(pointer);
        }
        memory.read(address, &mut mailbox).map_err(|_| pointer)?;
        if mailbox::TOKEN.get(&mailbox) != entry::TOKEN.get(entry) {
            return Err(Delivery::Token);
        }
        if mailbox::BLOCK_NUMBER.get(&mailbox) != number {
            return Err(Delivery::BlockNumber);
        }
        let next = mailbox::NEXT.get(&mailbox);
        chain.push((mailbox, address));
        address = next;
    }
    Ok(chain)
}

impl Command {
    /// Writes the output and passes the entry back to the driver.
    pub(crate) fn complete(&self, memory: &GuestMemory, output: &[u8]) -> io::Result<()> {
        let (inline, rest) = output.split_at(INLINE.min(output.len()));
        memory.write(self.address + OUTPUT as u64, inline)?;
        let first = entry::OUTPUT_MAILBOX.get(&self.entry);
        let chain = mailboxes(
            memory,
            first,
            &self.entry,
            output.len(),
            Delivery::OutputPointer,
        )
        .map_err(|delivery| io::Error::other(format!("the output changed: {delivery:?}")))?;
        for (data, (_, address)) in rest.chunks(MAILBOX_DATA).zip(chain) {
            memory.write(address, data)?;
        }
        memory.write(self.address + STATUS_OWN, &[0])
    }
}

/// Passes an entry back to the driver that was not executed.
pub(crate) fn reject(memory: &GuestMemory, address: u64, delivery: Delivery) -> io::Result<()> {
    memory.write(address + STATUS_OWN, &[(delivery as u8) << 1])
}

/// Writes the first entry of a queue, with the rest of its input in a mailbox after the queue.
#[cfg(test)]
pub(crate) fn write_entry(memory: &GuestMemory, queue: u64, input: &[u8], output_length: u64) {
    let (mut entry, mut mailbox) = ([0; ENTRY], [0; MAILBOX]);
    for (field, value) in [
        (entry::TYPE, PCI_TRANSPORT),
        (entry::INPUT_LENGTH, input.len() as u64),
        (entry::INPUT_MAILBOX, queue + 0x1000),
        (entry::OUTPUT_LENGTH, output_length),
        (entry::OWNERSHIP, 1),
    ] {
        field.set(&mut entry, value);
    }
    let (inline, rest) = input.split_at(INLINE);
    entry[INPUT..INPUT + INLINE].copy_from_slice(inline);
    mailbox[..rest.len()].copy_from_slice(rest);
    memory.write(queue, &entry).unwrap();
    memory.write(queue + 0x1000, &mailbox).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUEUE: u64 = 0x1000;
    const MAILBOXES: u64 = 0x4000;

    fn memory() -> GuestMemory {
        let file = tempfile::tempfile().unwrap();
        file.set_len(0x2_0000).unwrap();
        let mut memory = GuestMemory::default();
        memory.map(0, 0x2_0000, Some(file), 0);
        memory
    }

    /// Writes a mailbox for input and one for output, and the entry with index 1.
    fn write_second_entry(memory: &GuestMemory, token: u64, input_length: u64) {
        let second = MAILBOXES + 0x400;
        for (address, content, number, next) in [
            (MAILBOXES, 1, 0, second),
            (second, 2, 1, 0),
            (MAILBOXES + 0x800, 3, 0, 0),
        ] {
            let mut block = [content; MAILBOX];
            mailbox::TOKEN.set(&mut block, token);
            mailbox::BLOCK_NUMBER.set(&mut block, number);
            mailbox::NEXT.set(&mut block, next);
            memory.write(address, &block).unwrap();
        }
        let mut entry = [0; ENTRY];
        for (field, value) in [
            (entry::TYPE, PCI_TRANSPORT),
            (entry::INPUT_LENGTH, input_length),
            (entry::INPUT_MAILBOX, MAILBOXES),
            (entry::OUTPUT_MAILBOX, MAILBOXES + 0x800),
            (entry::OUTPUT_LENGTH, 0x20),
            (entry::TOKEN, 9),
            (entry::OWNERSHIP, 1),
        ] {
            field.set(&mut entry, value);
        }
        memory.write(QUEUE + ENTRY as u64, &entry).unwrap();
    }

    #[test]
    fn a_command_has_its_data_in_the_entry_and_in_mailboxes() {
        let memory = memory();
        write_second_entry(&memory, 9, 16 + 512 + 4);
        assert!(read(&memory, QUEUE, 0).unwrap().is_none());
        let command = read(&memory, QUEUE, 1).unwrap().unwrap().unwrap();
        assert_eq!(command.input.len(), 532);
        assert_eq!(
            (command.input[15], command.input[16], command.input[531]),
            (0, 1, 2)
        );
        assert_eq!(command.output_length, 0x20);

        let output: Vec<u8> = (0..0x20).collect();
        command.complete(&memory, &output).unwrap();
        let (mut entry, mut block) = ([0; ENTRY], [0; MAILBOX]);
        memory.read(QUEUE + ENTRY as u64, &mut entry).unwrap();
        memory.read(MAILBOXES + 0x800, &mut block).unwrap();
        assert_eq!(entry[OUTPUT..OUTPUT + INLINE], output[..16]);
        assert_eq!(block[..17], [&output[16..], &[3]].concat());
        assert!(read(&memory, QUEUE, 1).unwrap().is_none());
    }

    #[test]
    fn a_malformed_entry_is_rejected_with_its_delivery_status() {
        let memory = memory();
        write_second_entry(&memory, 8, 32);
        let (address, delivery) = read(&memory, QUEUE, 1).unwrap().unwrap().unwrap_err();
        assert_eq!(delivery, Delivery::Token);
        reject(&memory, address, delivery).unwrap();
        let mut status = [0];
        memory.read(address + STATUS_OWN, &mut status).unwrap();
        assert_eq!(status, [0x04]);

        write_second_entry(&memory, 9, 7);
        assert_eq!(
            read(&memory, QUEUE, 1).unwrap().unwrap().unwrap_err().1,
            Delivery::InputLength
        );
        write_second_entry(&memory, 9, 16 + 1024 + 1);
        assert_eq!(
            read(&memory, QUEUE, 1).unwrap().unwrap().unwrap_err().1,
            Delivery::InputPointer
        );
    }
}
