//! Memory keys: regions and windows, and the translation of addresses that requests name.

use crate::abi::core::access;
use crate::dmabuf::DmabufMapping;
use crate::errno::{Errno, Result};
use crate::memory::{PAGE, Pinned};
use crate::table::Table;

/// A memory region, or a window onto one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Current value of the key. Binding a window changes its low 8 bits.
    pub(crate) value: u32,
    pub(crate) pd: u32,
    pub(crate) target: Target,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Region(Region),
    Window {
        /// `IBV_MW_TYPE_1` or `IBV_MW_TYPE_2`.
        kind: u8,
        bound: Option<Binding>,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) memory: Pinned,
    /// Address of the first byte in requests.
    pub(crate) iova: u64,
    pub(crate) access: u32,
    /// The mapping that the model made for the region, if its memory is a dma-buf.
    pub(crate) mapping: Option<DmabufMapping>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Binding {
    /// Key of the region.
    pub(crate) region: u32,
    pub(crate) address: u64,
    pub(crate) length: u64,
    pub(crate) access: u32,
    /// The only queue pair that may use a window of type 2.
    pub(crate) qpn: Option<u32>,
}

pub(crate) struct Keys {
    table: Table<Key>,
    next_variant: u8,
}

/// Index of a key value in the table.
pub(crate) const fn index(value: u32) -> u32 {
    value >> 8
}

impl Keys {
    pub(crate) fn new(max: u32) -> Self {
        Self {
            // The key 0x100 ends the list of a receive request.
            table: Table::between(2, max),
            next_variant: 0x11,
        }
    }

    /// Creates a key and returns its value.
    pub(crate) fn insert(&mut self, pd: u32, target: Target) -> Result<u32> {
        // The low byte of a region's key changes, so that a stale key is noticed. A window starts
        // with 0, which the library increments.
        let variant = match target {
            Target::Region(_) => self.next_variant,
            Target::Window { .. } => 0,
        };
        self.next_variant = self.next_variant.wrapping_add(0x35);
        self.insert_variant(pd, target, variant)
    }

    /// Creates a key whose low byte is chosen by the caller, and returns its value.
    pub(crate) fn insert_variant(&mut self, pd: u32, target: Target, variant: u8) -> Result<u32> {
        let number = self.table.insert(Key {
            value: 0,
            pd,
            target,
        })?;
        let value = number << 8 | u32::from(variant);
        self.table.get_mut(number).ok_or(Errno::ENOMEM)?.value = value;
        Ok(value)
    }

    pub(crate) fn get(&self, value: u32) -> Option<&Key> {
        self.table
            .get(index(value))
            .filter(|key| key.value == value)
    }

    /// Returns the size of the program's memory in all regions in whole pages, in bytes. Memory of
    /// other devices is not limited.
    pub(crate) fn pinned(&self) -> u64 {
        let size = |key: &Key| match key.target {
            Target::Region(region) if region.mapping.is_none() => {
                region.memory.length().next_multiple_of(PAGE)
            }
            Target::Region(_) | Target::Window { .. } => 0,
        };
        self.table.iter().map(|(_, key)| size(key)).sum()
    }

    /// Returns the entry of a key whatever its low byte.
    pub(crate) fn by_index(&mut self, index: u32) -> Option<&mut Key> {
        self.table.get_mut(index)
    }

    pub(crate) fn remove(&mut self, index: u32) {
        if let Some(Key {
            target: Target::Region(region),
            ..
        }) = self.table.get_mut(index)
        {
            region.release();
        }
        self.table.remove(index);
    }

    /// Returns the memory that a data segment names. `write` asks for the right to change it.
    pub(crate) fn local(
        &self,
        value: u32,
        pd: u32,
        address: u64,
        length: u64,
        write: bool,
    ) -> Option<Pinned> {
        let need = if write { access::LOCAL_WRITE } else { 0 };
        let key = self.get(value).filter(|key| key.pd == pd)?;
        match key.target {
            Target::Region(region) if region.access & need == need => {
                region.translate(address, length)
            }
            _ => None,
        }
    }

    /// Returns the memory that a remote request names, if the rights include `need`.
    pub(crate) fn remote(
        &self,
        value: u32,
        pd: u32,
        qpn: u32,
        address: u64,
        length: u64,
        need: u32,
    ) -> Option<Pinned> {
        let key = self.get(value).filter(|key| key.pd == pd)?;
        match key.target {
            Target::Region(region) if region.access & need == need => {
                region.translate(address, length)
            }
            Target::Window {
                bound: Some(bound), ..
            } if bound.access & need == need
                && bound.qpn.is_none_or(|allowed| allowed == qpn)
                && address >= bound.address
                && address.checked_add(length)? <= bound.address + bound.length =>
            {
                match self.get(bound.region)?.target {
                    Target::Region(region) => region.translate(address, length),
                    Target::Window { .. } => None,
                }
            }
            _ => None,
        }
    }

    /// Binds a window to a part of a region.
    pub(crate) fn bind(&mut self, window: u32, value: u32, pd: u32, binding: Binding) -> bool {
        let Some(Target::Region(region)) = self
            .get(binding.region)
            .filter(|key| key.pd == pd)
            .map(|key| key.target)
        else {
            return false;
        };
        let writes = access::REMOTE_WRITE | access::REMOTE_ATOMIC;
        if region.access & access::MW_BIND == 0
            || region.access & access::ZERO_BASED != 0
            || region.translate(binding.address, binding.length).is_none()
            || (binding.access & writes != 0 && region.access & access::LOCAL_WRITE == 0)
        {
            return false;
        }
        match self.by_index(window) {
            Some(Key {
                value: current,
                pd: window_pd,
                target: Target::Window { bound, kind },
            }) if *window_pd == pd && !(*kind == 2 && bound.is_some()) => {
                *bound = Some(binding);
                *current = value;
                true
            }
            _ => false,
        }
    }

    /// Invalidates a bound window of type 2. Fails if `value` is not the current key of a bound
    /// window, or if another queue pair owns it.
    pub(crate) fn unbind(&mut self, value: u32, pd: u32, qpn: u32) -> bool {
        match self.by_index(index(value)) {
            Some(Key {
                value: current,
                pd: window_pd,
                target: Target::Window { bound, kind: 2 },
            }) if *current == value && *window_pd == pd => {
                let owned = bound.is_some_and(|b| b.qpn.is_none_or(|owner| owner == qpn));
                if owned {
                    *bound = None;
                }
                owned
            }
            _ => false,
        }
    }
}

impl Region {
    /// Unmaps a dma-buf. No packet can name the memory afterwards.
    pub(crate) fn release(&mut self) {
        if let Some(mapping) = self.mapping.take() {
            mapping.unmap();
        }
    }

    fn translate(&self, address: u64, length: u64) -> Option<Pinned> {
        self.memory.part(address.checked_sub(self.iova)?, length)
    }
}
