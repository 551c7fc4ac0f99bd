//! Pages that the provider maps: doorbell pages, the clock and device memory.

use std::ffi::{c_int, c_void};
use std::os::fd::OwnedFd;

use zerocopy::IntoBytes;

use super::caps::{CLOCK_OFFSET, MAX_DM};
use crate::abi::mlx5::{
    ClockInfo, DM_PAGE_INDEX, DM_START_OFFSET, DM_TYPE, MMAP_CLOCK_INFO, MMAP_CORE_CLOCK,
    MMAP_DEVICE_MEM, OBJECT_UAR, QUERY_DM_LENGTH, QUERY_DM_PAGE_INDEX, QUERY_DM_START_OFFSET,
    UAR_ALLOC, UAR_DESTROY, UAR_HANDLE, UAR_MMAP_LENGTH, UAR_MMAP_OFFSET, UAR_PAGE_ID,
};
use crate::attr::Attrs;
use crate::errno::{Errno, Result};
use crate::memory::{PAGE, Pinned};
use crate::syscall::SharedMemory;
use crate::table::Table;

/// First page offset of doorbell pages, above all commands of the older interface.
const FIRST_UAR: u64 = 0x1_0000;
/// Device memory that transfers can name. The other types belong to flow steering.
const DM_MEMIC: u32 = 0;
/// Fixed-point shift of the conversion from cycles to nanoseconds.
const CLOCK_SHIFT: u32 = 20;

pub(super) struct Pages {
    next_uar: u32,
    /// Pages of the clock and of the conversion to wall-clock time, from the first use.
    clock: Option<SharedMemory>,
    clock_info: Option<SharedMemory>,
    /// Device memory with its length as requested.
    dm: Table<(u64, SharedMemory)>,
    dm_allocated: u64,
    now: u64,
}

impl Pages {
    pub(super) fn new() -> Self {
        Self {
            next_uar: 1,
            clock: None,
            clock_info: None,
            dm: Table::new(1 << 12),
            dm_allocated: 0,
            now: 0,
        }
    }

    pub(super) fn driver_method(&mut self, object: u16, method: u16, attrs: &Attrs) -> Result<()> {
        match (object, method) {
            (OBJECT_UAR, UAR_ALLOC) => {
                let number = self.next_uar;
                self.next_uar += 1;
                attrs.write_handle(UAR_HANDLE, u64::from(number))?;
                let offset = (FIRST_UAR + u64::from(number)) * PAGE;
                attrs.write(UAR_MMAP_OFFSET, &offset)?;
                attrs.write(UAR_MMAP_LENGTH, &4096_u32)?;
                attrs.write(UAR_PAGE_ID, &number)
            }
            (OBJECT_UAR, UAR_DESTROY) => Ok(()),
            // No other objects of DEVX and no flow steering.
            (OBJECT_UAR, _) => Err(Errno::EPROTONOSUPPORT),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    pub(super) fn mmap(
        &mut self,
        length: usize,
        protection: c_int,
        offset: u64,
    ) -> Result<*mut c_void> {
        let page = offset / PAGE;
        if page >= FIRST_UAR {
            // The doorbells are not read: the model polls the doorbell records.
            return SharedMemory::new(length)?.map(length, protection);
        }
        match page >> 8 {
            MMAP_CORE_CLOCK => shared_page(&mut self.clock)?.map(length, protection),
            MMAP_CLOCK_INFO => {
                if self.clock_info.is_none() {
                    write_clock_info(shared_page(&mut self.clock_info)?, self.now);
                }
                shared_page(&mut self.clock_info)?.map(length, protection)
            }
            MMAP_DEVICE_MEM => self.dm_at(page)?.map(length, protection),
            _ => Err(Errno::EINVAL),
        }
    }

    /// Returns the device memory that the program maps at a page offset.
    fn dm_at(&self, page: u64) -> Result<&SharedMemory> {
        // The index of the page is in the low 8 bits and above bit 16.
        let index = page & 0xff | page >> 16 << 8;
        let number = u32::try_from(index).map_err(|_| Errno::EINVAL)?;
        let (_, memory) = self.dm.get(number).ok_or(Errno::EINVAL)?;
        Ok(memory)
    }

    /// Exports device memory as a dma-buf (`mlx5_ib_mmap_get_pfns`).
    pub(super) fn export(&self, offset: u64) -> Result<OwnedFd> {
        let page = offset / PAGE;
        if page >= FIRST_UAR || page >> 8 & 0xff != MMAP_DEVICE_MEM {
            return Err(Errno::EINVAL);
        }
        self.dm_at(page)?.export()
    }

    /// Writes the time into the page of the clock.
    pub(super) fn update_clock(&mut self, now: u64) {
        self.now = now;
        if let Some(page) = &self.clock {
            let page = page.pinned();
            // The reader takes the upper half before and after the lower half.
            page.store_be32(CLOCK_OFFSET, (now >> 32) as u32);
            page.store_be32(CLOCK_OFFSET + 4, (now & 0xffff_ffff) as u32);
        }
    }

    pub(super) fn alloc_dm(&mut self, length: u64, attrs: &Attrs) -> Result<u32> {
        if attrs.u32_or_zero(DM_TYPE)? != DM_MEMIC {
            return Err(Errno::EOPNOTSUPP);
        }
        let rounded = length
            .checked_next_multiple_of(PAGE)
            .filter(|size| *size > 0 && self.dm_allocated + size <= MAX_DM)
            .ok_or(Errno::ENOMEM)?;
        let size = usize::try_from(rounded).map_err(|_| Errno::ENOMEM)?;
        let number = self.dm.insert((length, SharedMemory::new(size)?))?;
        self.dm_allocated += rounded;
        attrs.write(DM_START_OFFSET, &0_u64)?;
        let index = u16::try_from(number).map_err(|_| Errno::ENOMEM)?;
        attrs.write(DM_PAGE_INDEX, &index)?;
        Ok(number)
    }

    pub(super) fn dm(&self, number: u32) -> Result<Pinned> {
        let (length, memory) = self.dm.get(number).ok_or(Errno::EINVAL)?;
        memory.pinned().part(0, *length).ok_or(Errno::EINVAL)
    }

    /// Writes what a second context needs to map device memory.
    pub(super) fn query_dm(&self, number: u32, attrs: &Attrs) -> Result<()> {
        let length = self.dm(number)?.length();
        let index = u16::try_from(number).map_err(|_| Errno::EINVAL)?;
        attrs.write(QUERY_DM_START_OFFSET, &0_u64)?;
        attrs.write(QUERY_DM_PAGE_INDEX, &index)?;
        attrs.write(QUERY_DM_LENGTH, &length)
    }

    pub(super) fn free_dm(&mut self, number: u32) {
        if let Some(entry) = self.dm.remove(number) {
            self.dm_allocated -= entry.1.pinned().length();
        }
    }
}

fn shared_page(page: &mut Option<SharedMemory>) -> Result<&SharedMemory> {
    if page.is_none() {
        *page = Some(SharedMemory::new(4096)?);
    }
    page.as_ref().ok_or(Errno::ENOMEM)
}

/// Writes the conversion of cycles to wall-clock time: cycles are nanoseconds.
fn write_clock_info(page: &SharedMemory, cycles: u64) {
    let wall = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        });
    let info = ClockInfo {
        nsec: wall,
        cycles,
        mult: 1 << CLOCK_SHIFT,
        shift: CLOCK_SHIFT,
        mask: u64::MAX,
        overflow_period: 1_000_000_000,
        ..ClockInfo::default()
    };
    page.pinned().write(0, info.as_bytes());
}
