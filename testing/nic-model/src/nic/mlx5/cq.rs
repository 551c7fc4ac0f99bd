//! Completion queues: entries, overrun, arming and resizing.

use zerocopy::IntoBytes;
use zerocopy::byteorder::network_endian::U64;

use super::Mlx5;
use super::cqe::{Cqe, kind};
use crate::abi::core::event;
use crate::abi::mlx5::{CreateCq as UserCreate, NumberResp, ResizeCq as UserResize};
use crate::attr::Udata;
use crate::errno::{Errno, Result};
use crate::memory::{self, Pinned};
use crate::nic::{CreateCq, Destroyed, EventTarget, Shared};

/// Maximum number of entries.
pub(super) const MAX_CQE: u32 = (1 << 22) - 1;

/// Value of the arm record of a queue that was never armed. The provider writes 0 there, which
/// would also be the first arm of a queue at entry 0.
const NEVER_ARMED: u32 = u32::MAX;

/// Offsets of the doorbell record.
const SET_CI: u64 = 0;
const ARM: u64 = 4;

/// Flags of an entry with data (`MLX5_INLINE_SCATTER_*` of libmlx5).
const INLINE_SCATTER_32: u8 = 4;
const INLINE_SCATTER_64: u8 = 8;

pub(super) struct Cq {
    memory: Pinned,
    doorbell: Pinned,
    /// Number of entries, a power of 2.
    entries: u32,
    entry_size: u32,
    /// Entries written.
    produced: u32,
    /// Value of `produced` after the last solicited entry or error.
    solicited: u32,
    /// Completion events sent.
    events_sent: u32,
    async_events: u32,
    channel: Option<u32>,
    events: EventTarget,
    overrun: bool,
}

/// Returns the size of a queue in bytes, if it is one that the adapter has.
pub(super) fn check(entries: u32, size: u32) -> Result<u64> {
    if entries > MAX_CQE || !(entries + 1).is_power_of_two() || !matches!(size, 64 | 128) {
        return Err(Errno::EINVAL);
    }
    Ok(u64::from(entries + 1) * u64::from(size))
}

impl Mlx5 {
    pub(super) fn new_cq(&mut self, create: &CreateCq, udata: &Udata) -> Result<u32> {
        let user: UserCreate = udata.read()?;
        let length = check(create.entries, user.cqe_size)?;
        let memory = memory::pin(user.buf_addr, length, true)?;
        let doorbell = memory::pin(user.db_addr, 8, true)?;
        let number = self.add_cq(create, memory, doorbell, user.cqe_size)?;
        udata.write(&NumberResp {
            number,
            reserved: 0,
        })?;
        Ok(number)
    }

    /// Adds a queue with its memory and its doorbell record.
    pub(super) fn add_cq(
        &mut self,
        create: &CreateCq,
        memory: Pinned,
        doorbell: Pinned,
        entry_size: u32,
    ) -> Result<u32> {
        doorbell.store_be32(ARM, NEVER_ARMED);
        self.cqs.insert(Cq {
            memory,
            doorbell,
            entries: create.entries + 1,
            entry_size,
            produced: 0,
            solicited: 0,
            events_sent: 0,
            async_events: 0,
            channel: create.comp_channel,
            events: create.events,
            overrun: false,
        })
    }

    /// Makes the number of a queue its handle in events.
    pub(super) fn name_cq(&mut self, number: u32) {
        if let Some(cq) = self.cqs.get_mut(number) {
            cq.events.user_handle = u64::from(number);
        }
    }

    /// Changes the buffer. The provider copies the entries from the old buffer, up to a special
    /// entry that the adapter writes there. Each copy has the next index, so that the special entry
    /// counts.
    pub(super) fn change_cq(
        &mut self,
        cx: &mut Shared,
        number: u32,
        entries: u32,
        udata: &Udata,
    ) -> Result<u32> {
        let user: UserResize = udata.read()?;
        let size = u32::from(user.cqe_size);
        let memory = memory::pin(user.buf_addr, check(entries, size)?, true)?;
        self.replace_cq(cx, number, entries, size, memory)?;
        Ok(entries)
    }

    /// Replaces the memory of a queue. `entries` is one less than their number.
    pub(super) fn replace_cq(
        &mut self,
        cx: &mut Shared,
        number: u32,
        entries: u32,
        size: u32,
        memory: Pinned,
    ) -> Result<()> {
        let cq = self.cqs.get_mut(number).ok_or(Errno::EINVAL)?;
        if cq.unread() > entries + 1 {
            return Err(Errno::EINVAL);
        }
        cq.write(Cqe::default(), kind::RESIZE, false, &[]);
        cq.memory = memory;
        cq.entries = entries + 1;
        cq.entry_size = size;
        cq.notify(cx);
        Ok(())
    }

    pub(super) fn remove_cq(&mut self, number: u32) -> Destroyed {
        self.cqs.remove(number).map_or(
            Destroyed {
                completion: 0,
                asynchronous: 0,
            },
            |cq| Destroyed {
                completion: cq.events_sent,
                asynchronous: cq.async_events,
            },
        )
    }

    /// Adds an entry to a completion queue. Returns `false` if the queue is overrun.
    pub(super) fn complete(
        &mut self,
        cx: &mut Shared,
        number: u32,
        cqe: Cqe,
        kind: u8,
        solicited: bool,
    ) -> bool {
        self.complete_with(cx, number, cqe, kind, solicited, &[])
    }

    /// Returns how many bytes of data an entry of a completion queue can have.
    pub(super) fn max_scattered(&self, number: Option<u32>) -> usize {
        let cq = number.and_then(|number| self.cqs.get(number));
        cq.map_or(0, |cq| cq.entry_size as usize / 2)
    }

    /// Adds an entry with data, which is not empty if the provider is to copy it to the memory of
    /// the request.
    pub(super) fn complete_with(
        &mut self,
        cx: &mut Shared,
        number: u32,
        mut cqe: Cqe,
        kind: u8,
        solicited: bool,
        data: &[u8],
    ) -> bool {
        let Some(cq) = self.cqs.get_mut(number) else {
            return true;
        };
        if !cq.overrun && cq.unread() >= cq.entries {
            cq.overrun = true;
            cq.async_events += 1;
            cq.events.report(&mut cx.channels, event::CQ_ERR);
        }
        if cq.overrun {
            return false;
        }
        let error = matches!(kind, kind::REQ_ERR | kind::RESP_ERR);
        if !error {
            cqe.timestamp = U64::new(cx.clock.now());
        }
        cq.write(cqe, kind, solicited, data);
        if solicited || error {
            cq.solicited = cq.produced;
        }
        cq.notify(cx);
        true
    }

    /// Sends the events of queues that were armed after their last entry.
    pub(super) fn notify_all(&mut self, cx: &mut Shared) {
        for number in self.cqs.numbers() {
            if let Some(cq) = self.cqs.get_mut(number) {
                cq.notify(cx);
            }
        }
    }
}

impl Cq {
    /// Returns the number of entries that the program has not consumed.
    pub(super) fn has_unread(&self) -> bool {
        self.unread() > 0
    }

    fn unread(&self) -> u32 {
        self.produced.wrapping_sub(self.doorbell.load_be32(SET_CI)) & 0x00ff_ffff
    }

    fn write(&mut self, mut cqe: Cqe, kind: u8, solicited: bool, data: &[u8]) {
        let slot = u64::from(self.produced & (self.entries - 1));
        // The entry is the last 64 bytes of a slot.
        let offset = (slot + 1) * u64::from(self.entry_size) - 64;
        let owner = u8::from(self.produced & self.entries != 0);
        cqe.op_own = kind << 4 | u8::from(solicited) << 1 | owner;
        if self.entry_size == 128 && !data.is_empty() {
            cqe.op_own |= INLINE_SCATTER_64;
            self.memory.write(offset - 64, data);
        } else if !data.is_empty() {
            cqe.op_own |= INLINE_SCATTER_32;
            cqe.as_mut_bytes()[..data.len()].copy_from_slice(data);
        }
        self.memory.write(offset, &cqe.as_bytes()[..63]);
        // The last byte makes the entry valid.
        self.memory.store_u8(offset + 63, cqe.op_own);
        self.produced = self.produced.wrapping_add(1);
    }

    /// Sends a completion event if the queue is armed and has an entry to report.
    fn notify(&mut self, cx: &mut Shared) {
        let Some(channel) = self.channel else {
            return;
        };
        let arm = self.doorbell.load_be32(ARM);
        // The provider counts the events, so an arm that was used has an old count.
        if arm == NEVER_ARMED || arm >> 28 & 3 != self.events_sent & 3 {
            return;
        }
        let reported = if arm >> 24 & 1 != 0 {
            self.solicited
        } else {
            self.produced
        };
        let ahead = reported.wrapping_sub(arm) & 0x00ff_ffff;
        if ahead == 0 || ahead >= 0x0080_0000 {
            return;
        }
        self.events_sent += 1;
        cx.channels.completion(channel, self.events.user_handle);
    }
}
