//! The initialization segment at the begin of BAR 0: registers that the driver reads before it can
//! send commands, the address of the command queue, its doorbell, and the health of the firmware.

use std::time::Instant;

use crate::layout::structures;

/// Bytes of the segment.
pub(crate) const SIZE: usize = 0x4000;
/// Version of the format of commands.
const COMMAND_INTERFACE: u64 = 5;
/// Logarithm of the number of entries of the command queue, and of the bytes of an entry.
pub(crate) const LOG_QUEUE_SIZE: u64 = 5;
pub(crate) const LOG_QUEUE_STRIDE: u64 = 6;
/// Firmware version: major, minor and subminor, as `testing/nic-model` reports them.
pub(crate) const FIRMWARE: [u64; 3] = [16, 35, 1012];
/// The counter of a healthy adapter advances; the driver reads it every two seconds.
const HEALTH_PERIOD_MS: u128 = 10;

/// Byte offsets of the registers that the driver writes.
const COMMAND_QUEUE_HIGH: usize = 0x10;
const COMMAND_QUEUE_LOW: usize = 0x14;
const COMMAND_DOORBELL: usize = 0x18;
const CLEAR_INTERRUPT: usize = 0x200c;

structures! {
    /// The registers.
    initial_seg {
        FW_REV_MINOR = 0x0, 16;
        FW_REV_MAJOR = 0x10, 16;
        CMD_INTERFACE_REV = 0x20, 16;
        FW_REV_SUBMINOR = 0x30, 16;
        CMDQ_PHY_ADDR_63_32 = 0x80, 32;
        CMDQ_PHY_ADDR_31_12 = 0xa0, 20;
        NIC_INTERFACE = 0xb5, 3;
        LOG_CMDQ_SIZE = 0xb8, 4;
        LOG_CMDQ_STRIDE = 0xbc, 4;
        FW_RESET_SUPPORTED = 0xfe1, 1;
        NIC_INTERFACE_SUPPORTED = 0xfe5, 3;
        RFR = 0x11c0, 1;
        SYNDROME = 0x11e8, 8;
        HEALTH_COUNTER = 0x8088, 24;
    }
}

/// Byte offset of the timer, the high half first (`internal_timer_h` of `struct mlx5_init_seg`).
const INTERNAL_TIMER: usize = 0x1000;

/// Effect of a write to the segment.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// Entries of the command queue are ready, one bit each.
    Doorbell(u32),
    /// The driver resets the firmware.
    Reset,
    /// A register that needs no further action.
    Register,
    /// A register that the driver cannot write.
    ReadOnly,
}

/// The registers of the initialization segment, except for those that advance with time.
#[derive(Debug)]
pub(crate) struct InitializationSegment {
    registers: Box<[u8; SIZE]>,
    started: Instant,
}

impl InitializationSegment {
    pub(crate) fn new() -> Self {
        let mut registers = Box::new([0; SIZE]);
        let [major, minor, subminor] = FIRMWARE;
        for (field, value) in [
            (initial_seg::FW_REV_MAJOR, major),
            (initial_seg::FW_REV_MINOR, minor),
            (initial_seg::FW_REV_SUBMINOR, subminor),
            (initial_seg::CMD_INTERFACE_REV, COMMAND_INTERFACE),
            (initial_seg::LOG_CMDQ_SIZE, LOG_QUEUE_SIZE),
            (initial_seg::LOG_CMDQ_STRIDE, LOG_QUEUE_STRIDE),
            (initial_seg::FW_RESET_SUPPORTED, 1),
            (initial_seg::NIC_INTERFACE_SUPPORTED, 1),
        ] {
            field.set(&mut registers[..], value);
        }
        Self {
            registers,
            started: Instant::now(),
        }
    }

    /// Returns the registers after a reset of the firmware: the interface is disabled.
    pub(crate) fn disabled() -> Self {
        const DISABLED: u64 = 1;
        let mut segment = Self::new();
        initial_seg::NIC_INTERFACE.set(&mut segment.registers[..], DISABLED);
        segment
    }

    /// Reports that the firmware has failed and requests a reset.
    pub(crate) fn fail(&mut self) {
        const FIRMWARE_ERROR: u64 = 1;
        initial_seg::RFR.set(&mut self.registers[..], 1);
        initial_seg::SYNDROME.set(&mut self.registers[..], FIRMWARE_ERROR);
    }

    /// Reads registers. The counters have the values of the present time.
    pub(crate) fn read(&mut self, offset: usize, data: &mut [u8]) {
        let elapsed = self.started.elapsed();
        // The counter is never zero: the driver takes that for an adapter that has not started.
        let health = elapsed.as_millis() / HEALTH_PERIOD_MS % 0xff_ffff + 1;
        let health = u64::try_from(health).expect("the counter has 24 bits");
        initial_seg::HEALTH_COUNTER.set(&mut self.registers[..], health);
        let timer = u64::try_from(elapsed.as_nanos()).expect("less than five centuries");
        self.registers[INTERNAL_TIMER..INTERNAL_TIMER + 8].copy_from_slice(&timer.to_be_bytes());
        data.copy_from_slice(&self.registers[offset..offset + data.len()]);
    }

    /// Writes a register of 32 bits.
    pub(crate) fn write(&mut self, offset: usize, value: u32) -> Written {
        const RESET: u64 = 7;
        match offset {
            COMMAND_QUEUE_HIGH => {
                initial_seg::CMDQ_PHY_ADDR_63_32.set(&mut self.registers[..], u64::from(value));
            }
            COMMAND_QUEUE_LOW => {
                let (page, interface) = (u64::from(value >> 12), u64::from(value >> 8 & 7));
                if interface == RESET {
                    return Written::Reset;
                }
                initial_seg::CMDQ_PHY_ADDR_31_12.set(&mut self.registers[..], page);
                initial_seg::NIC_INTERFACE.set(&mut self.registers[..], interface);
            }
            COMMAND_DOORBELL => return Written::Doorbell(value),
            CLEAR_INTERRUPT => {}
            _ => return Written::ReadOnly,
        }
        Written::Register
    }

    /// Returns the address of the command queue.
    pub(crate) fn command_queue(&self) -> u64 {
        initial_seg::CMDQ_PHY_ADDR_63_32.get(&self.registers[..]) << 32
            | initial_seg::CMDQ_PHY_ADDR_31_12.get(&self.registers[..]) << 12
    }
}

#[cfg(test)]
mod tests {
    use super::{InitializationSegment, Written};

    fn read(segment: &mut InitializationSegment, offset: usize) -> u32 {
        let mut data = [0; 4];
        segment.read(offset, &mut data);
        u32::from_be_bytes(data)
    }

    #[test]
    fn the_address_of_the_command_queue_keeps_its_size() {
        let mut segment = InitializationSegment::new();
        assert_eq!(segment.write(0x10, 0x12), Written::Register);
        assert_eq!(segment.write(0x14, 0x3456_7000), Written::Register);
        assert_eq!(segment.command_queue(), 0x12_3456_7000);
        assert_eq!(read(&mut segment, 0x14), 0x3456_7056);
    }

    #[test]
    fn the_health_counter_is_never_zero() {
        let mut segment = InitializationSegment::new();
        assert!(read(&mut segment, 0x1010) & 0xff_ffff > 0);
        assert_eq!(segment.write(0x18, 5), Written::Doorbell(5));
        assert_eq!(segment.write(0x0, 5), Written::ReadOnly);
    }
}
