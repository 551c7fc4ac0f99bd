//! Access to the guest's memory through the files that QEMU passes.

use std::fs::File;
use std::io::{self, Error, ErrorKind};
use std::os::unix::fs::FileExt;

use nic_model::Part;

/// A range of guest addresses that a file backs.
#[derive(Debug)]
struct Range {
    address: u64,
    size: u64,
    file: File,
    offset: u64,
}

impl Range {
    fn part(&self) -> Part<'_> {
        Part {
            at: self.address,
            length: self.size,
            file: &self.file,
            offset: self.offset,
        }
    }
}

/// Memory that the function accesses by bus-master transfers.
///
/// It is read and written with system calls and not mapped: a guest changes it at any time, which
/// is not compatible with references. A write of one byte is atomic, which suffices for the
/// ownership bits of the interface.
#[derive(Debug, Default)]
pub(crate) struct GuestMemory {
    ranges: Vec<Range>,
}

impl GuestMemory {
    /// Adds a range. Memory without a file is not accessible, such as the guest's ROM.
    pub(crate) fn map(&mut self, address: u64, size: u64, file: Option<File>, offset: u64) {
        if let Some(file) = file {
            self.ranges.push(Range {
                address,
                size,
                file,
                offset,
            });
        }
    }

    /// Removes the ranges inside a range.
    pub(crate) fn unmap(&mut self, address: u64, size: u64) {
        self.ranges
            .retain(|range| range.address < address || range.address - address >= size);
    }

    /// Removes all ranges.
    pub(crate) fn unmap_all(&mut self) {
        self.ranges.clear();
    }

    /// Reads from an address.
    pub(crate) fn read(&self, address: u64, data: &mut [u8]) -> io::Result<()> {
        let (file, offset) = self.find(address, data.len())?;
        file.read_exact_at(data, offset)
    }

    /// Writes to an address.
    pub(crate) fn write(&self, address: u64, data: &[u8]) -> io::Result<()> {
        let (file, offset) = self.find(address, data.len())?;
        file.write_all_at(data, offset)
    }

    /// Returns the pages of `size` bytes at some addresses, one after the other. Pages that are
    /// adjacent in a file are one part: a process may have only 65,530 mappings.
    pub(crate) fn pages(&self, addresses: &[u64], size: u64) -> io::Result<Vec<Part<'_>>> {
        let length = usize::try_from(size).map_err(|_| ErrorKind::InvalidInput)?;
        let mut parts: Vec<Part<'_>> = Vec::new();
        let mut at = 0;
        for address in addresses {
            let (file, offset) = self.find(*address, length)?;
            match parts.last_mut() {
                Some(last)
                    if std::ptr::eq(last.file, file) && last.offset + last.length == offset =>
                {
                    last.length += size;
                }
                _ => parts.push(Part {
                    at,
                    length: size,
                    file,
                    offset,
                }),
            }
            at += size;
        }
        Ok(parts)
    }

    /// Returns all memory, at the offsets that are its addresses.
    pub(crate) fn all(&self) -> Vec<Part<'_>> {
        let mut parts: Vec<_> = self.ranges.iter().map(Range::part).collect();
        parts.sort_by_key(|part| part.at);
        parts
    }

    /// Returns the file of a transfer and the offset in it.
    fn find(&self, address: u64, length: usize) -> io::Result<(&File, u64)> {
        self.ranges
            .iter()
            .find_map(|range| {
                let inside = address.checked_sub(range.address)?;
                let end = inside.checked_add(length as u64)?;
                (end <= range.size).then_some((&range.file, range.offset + inside))
            })
            .ok_or_else(|| {
                let problem =
                    format!("{length} bytes at {address:#x} are not in the guest's memory");
                Error::new(ErrorKind::InvalidInput, problem)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::GuestMemory;

    #[test]
    fn a_transfer_reaches_the_file_of_its_range() {
        let (low, high) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
        high.set_len(0x3000).unwrap();
        let mut memory = GuestMemory::default();
        memory.map(0, 0x1000, Some(low), 0);
        memory.map(0x10_0000, 0x1000, Some(high.try_clone().unwrap()), 0x2000);
        memory.write(0x10_0ffc, b"abcd").unwrap();
        let mut data = [0; 4];
        std::os::unix::fs::FileExt::read_exact_at(&high, &mut data, 0x2ffc).unwrap();
        assert_eq!(&data, b"abcd");
        memory.read(0x10_0ffc, &mut data).unwrap();
        assert_eq!(&data, b"abcd");
    }

    #[test]
    fn adjacent_pages_are_one_part() {
        let file = tempfile::tempfile().unwrap();
        let mut memory = GuestMemory::default();
        memory.map(0x10_0000, 0x10_0000, Some(file), 0x1000);
        let pages = [0x10_3000, 0x10_4000, 0x10_1000];
        let parts = memory.pages(&pages, 0x1000).unwrap();
        let parts: Vec<_> = parts
            .iter()
            .map(|part| (part.at, part.length, part.offset))
            .collect();
        assert_eq!(parts, [(0, 0x2000, 0x4000), (0x2000, 0x1000, 0x2000)]);
        assert!(memory.pages(&[0x20_0000], 0x1000).is_err());
        assert_eq!(memory.all()[0].at, 0x10_0000);
    }

    #[test]
    fn a_transfer_outside_of_the_memory_fails() {
        let mut memory = GuestMemory::default();
        memory.map(0x1000, 0x1000, Some(tempfile::tempfile().unwrap()), 0);
        for address in [0, 0xfff, 0x1ffd, 0x2000, u64::MAX - 1] {
            let error = memory.write(address, b"abcd").unwrap_err();
            assert!(
                error.to_string().contains("not in the guest's memory"),
                "{error}"
            );
        }
        memory.unmap(0x1000, 0x1000);
        assert!(memory.write(0x1000, b"abcd").is_err());
    }
}
