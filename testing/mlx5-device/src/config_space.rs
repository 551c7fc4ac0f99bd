//! The PCI configuration space of the function.
//!
//! QEMU emulates the base address registers and MSI-X itself, and forwards the other accesses.

use crate::bar;

/// Bytes of the configuration space of a PCI Express function.
pub(crate) const SIZE: usize = 4096;

const VENDOR_MELLANOX: u16 = 0x15b3;
/// ConnectX-5, as `testing/nic-model` reports it.
pub(crate) const DEVICE: u16 = 0x1017;
/// Network controller, InfiniBand: the link layer of its port.
const CLASS: [u8; 3] = [0x00, 0x07, 0x02];

const COMMAND: usize = 0x04;
const COMMAND_MEMORY_MASTER_INTX: u16 = 0x0406;
const STATUS_CAPABILITIES: u16 = 0x10;
const BAR0: usize = 0x10;
const BAR_64_BIT_PREFETCHABLE: u8 = 0x0c;
const CAPABILITY_POINTER: usize = 0x34;

const EXPRESS: usize = 0x60;
const EXPRESS_ID: u8 = 0x10;
/// Version 2, endpoint.
const EXPRESS_FLAGS: u16 = 0x0002;
const EXPRESS_ROLE_BASED_ERRORS: u32 = 1 << 15;
/// 16 lanes at 8 GT/s.
const EXPRESS_LINK: u32 = 16 << 4 | 3;

const MSIX: usize = 0x9c;
const MSIX_ID: u8 = 0x11;

const VENDOR_SPECIFIC: usize = 0xc0;
const VENDOR_SPECIFIC_ID: u8 = 0x09;
const GATEWAY_COUNTER: usize = 0x8;
const GATEWAY_SEMAPHORE: usize = 0xc;

/// The values of the configuration space and the bits that the guest can change.
pub(crate) struct ConfigSpace {
    values: [u8; SIZE],
    writable: [u8; SIZE],
}

impl ConfigSpace {
    pub(crate) fn new() -> Self {
        let mut space = Self {
            values: [0; SIZE],
            writable: [0; SIZE],
        };
        space.set(0x00, &VENDOR_MELLANOX.to_le_bytes());
        space.set(0x02, &DEVICE.to_le_bytes());
        space.set(0x06, &STATUS_CAPABILITIES.to_le_bytes());
        space.set(0x09, &CLASS);
        space.set(0x2c, &VENDOR_MELLANOX.to_le_bytes());
        space.set(BAR0, &[BAR_64_BIT_PREFETCHABLE]);
        space.allow(COMMAND, &COMMAND_MEMORY_MASTER_INTX.to_le_bytes());
        space.allow(BAR0, &(!(bar::SIZE - 1)).to_le_bytes());
        space.add_capabilities();
        space
    }

    fn add_capabilities(&mut self) {
        self.set(CAPABILITY_POINTER, &[to_byte(EXPRESS)]);
        self.set(EXPRESS, &[EXPRESS_ID, to_byte(MSIX)]);
        self.set(EXPRESS + 0x02, &EXPRESS_FLAGS.to_le_bytes());
        self.set(EXPRESS + 0x04, &EXPRESS_ROLE_BASED_ERRORS.to_le_bytes());
        self.set(EXPRESS + 0x0c, &EXPRESS_LINK.to_le_bytes());
        self.set(EXPRESS + 0x12, &EXPRESS_LINK.to_le_bytes()[..2]);
        // Device control: maximum payload, maximum read request, relaxed order, no snoop.
        self.allow(EXPRESS + 0x08, &0x78f0_u16.to_le_bytes());

        self.set(MSIX, &[MSIX_ID, to_byte(VENDOR_SPECIFIC)]);
        let last = u16::try_from(bar::VECTORS - 1).expect("MSI-X has at most 2048 vectors");
        self.set(MSIX + 0x02, &last.to_le_bytes());
        self.set(MSIX + 0x04, &bar::MSIX_TABLE.to_le_bytes());
        self.set(MSIX + 0x08, &bar::MSIX_PENDING.to_le_bytes());
        self.allow(MSIX + 0x02, &0xc000_u16.to_le_bytes());

        // The gateway to the spaces of the firmware: a semaphore, and no space.
        self.set(VENDOR_SPECIFIC, &[VENDOR_SPECIFIC_ID, 0, 0x18]);
        self.set(VENDOR_SPECIFIC + GATEWAY_COUNTER, &[1]);
        self.allow(VENDOR_SPECIFIC + GATEWAY_SEMAPHORE, &[0xff; 4]);
    }

    fn set(&mut self, offset: usize, values: &[u8]) {
        self.values[offset..offset + values.len()].copy_from_slice(values);
    }

    fn allow(&mut self, offset: usize, bits: &[u8]) {
        self.writable[offset..offset + bits.len()].copy_from_slice(bits);
    }

    /// Reads registers; those outside of the space are zero.
    pub(crate) fn read(&self, offset: usize, data: &mut [u8]) {
        for (i, byte) in data.iter_mut().enumerate() {
            *byte = self.values.get(offset + i).copied().unwrap_or(0);
        }
    }

    /// Writes the bits that the guest can change.
    pub(crate) fn write(&mut self, offset: usize, data: &[u8]) {
        for (i, byte) in data
            .iter()
            .enumerate()
            .take_while(|(i, _)| offset + i < SIZE)
        {
            let writable = self.writable[offset + i];
            let value = &mut self.values[offset + i];
            *value = *value & !writable | byte & writable;
        }
    }
}

fn to_byte(offset: usize) -> u8 {
    u8::try_from(offset).expect("capabilities are in the first 256 bytes")
}

#[cfg(test)]
mod tests {
    use super::{BAR0, COMMAND, ConfigSpace};
    use crate::bar;

    fn read32(space: &ConfigSpace, offset: usize) -> u32 {
        let mut data = [0; 4];
        space.read(offset, &mut data);
        u32::from_le_bytes(data)
    }

    #[test]
    fn the_size_of_the_bar_is_found_by_writing_ones() {
        let mut space = ConfigSpace::new();
        space.write(BAR0, &[0xff; 8]);
        let size =
            u64::from(read32(&space, BAR0) & !0xf) | u64::from(read32(&space, BAR0 + 4)) << 32;
        assert_eq!(size.wrapping_neg(), bar::SIZE);
        assert_eq!(read32(&space, BAR0) & 0xf, 0xc);
    }

    #[test]
    fn identity_is_read_only_and_capabilities_end() {
        let mut space = ConfigSpace::new();
        space.write(0, &[0xff; 4]);
        assert_eq!(read32(&space, 0), 0x1017_15b3);
        space.write(COMMAND, &[0xff; 2]);
        assert_eq!(read32(&space, COMMAND) & 0xffff, 0x0406);
        let (mut at, mut found) = (read32(&space, 0x34) & 0xff, Vec::new());
        while at != 0 {
            let header = read32(&space, at as usize);
            found.push(header & 0xff);
            at = header >> 8 & 0xff;
        }
        assert_eq!(found, [0x10, 0x11, 0x09]);
    }
}
