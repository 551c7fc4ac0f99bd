//! Completion queues. Each has one ring for the send queues and one for the receive queues.

use zerocopy::IntoBytes;

use super::Efa;
use super::caps::{MAX_CQE, SUB_CQS};
use super::descriptor::{COMPLETION_SIZE, Completion, LARGE_COMPLETION_SIZE, Queue};
use crate::abi::efa::{
    CREATE_CQ_RESP_DB_OFF, CREATE_CQ_WITH_CHANNEL, CREATE_CQ_WITH_SGID, CreateCq as UserCreate,
    CreateCqResp,
};
use crate::attr::Udata;
use crate::errno::{Errno, Result};
use crate::memory::Pinned;
use crate::nic::{CreateCq, Destroyed, EventTarget, Shared};

/// Bits of the doorbell.
const CONSUMED: u32 = 0xffff;
const SEQUENCE: u32 = 3 << 29;

pub(super) struct Cq {
    number: u32,
    /// Numbers of the shared memory of the rings and of the doorbell.
    memory: [u32; 2],
    rings: Pinned,
    doorbell: Pinned,
    entries: u32,
    entry_size: u32,
    /// Entries written to each ring.
    produced: [u32; SUB_CQS as usize],
    /// Value of the doorbell in the last step: entries consumed, number of the arm, and whether
    /// the last write armed the queue.
    seen: u32,
    /// Entries written when the last event was sent.
    reported: u32,
    armed: bool,
    events_sent: u32,
    channel: Option<u32>,
    events: EventTarget,
}

impl Efa {
    pub(super) fn new_cq(&mut self, create: &CreateCq, udata: &Udata) -> Result<u32> {
        let user: UserCreate = udata.read()?;
        if create.entries == 0
            || create.entries > MAX_CQE
            || user.comp_mask != 0
            || user.num_sub_cqs != SUB_CQS
            || !matches!(user.cq_entry_size, COMPLETION_SIZE | LARGE_COMPLETION_SIZE)
            || user.flags & !(CREATE_CQ_WITH_CHANNEL | CREATE_CQ_WITH_SGID) != 0
        {
            return Err(Errno::EINVAL);
        }
        let size = u64::from(user.cq_entry_size) * u64::from(create.entries) * u64::from(SUB_CQS);
        let (rings_key, rings) = self.share(size)?;
        let (doorbell_key, doorbell) = self.share(4)?;
        let number = self.cqs.insert(Cq {
            number: 0,
            memory: [rings_key, doorbell_key],
            rings,
            doorbell,
            entries: create.entries,
            entry_size: user.cq_entry_size,
            produced: [0; SUB_CQS as usize],
            seen: 0,
            reported: 0,
            armed: false,
            events_sent: 0,
            channel: create.comp_channel,
            events: create.events,
        })?;
        self.cqs.get_mut(number).ok_or(Errno::ENOMEM)?.number = number;
        udata.write(&CreateCqResp {
            comp_mask: CREATE_CQ_RESP_DB_OFF,
            q_mmap_key: super::offset(rings_key),
            q_mmap_size: rings.length(),
            cq_idx: u16::try_from(number).map_err(|_| Errno::ENOMEM)?,
            db_off: 0,
            db_mmap_key: super::offset(doorbell_key),
            ..CreateCqResp::default()
        })?;
        Ok(number)
    }

    pub(super) fn remove_cq(&mut self, number: u32) -> Destroyed {
        let Some(cq) = self.cqs.remove(number) else {
            return Destroyed::default();
        };
        self.unshare(&cq.memory);
        Destroyed {
            completion: cq.events_sent,
            asynchronous: 0,
        }
    }

    /// Adds an entry to a completion queue.
    pub(super) fn complete(
        &mut self,
        cx: &mut Shared,
        number: u32,
        queue: Queue,
        entry: &Completion,
    ) {
        if let Some(cq) = self.cqs.get_mut(number) {
            cq.write(queue, entry);
            cq.notify(cx);
        }
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
    fn total(&self) -> u32 {
        self.produced
            .iter()
            .fold(0, |sum, count| sum.wrapping_add(*count))
    }

    /// # Aborts
    /// No source says what the adapter does when a queue overruns, so the model ends the program.
    fn write(&mut self, queue: Queue, entry: &Completion) {
        let unread = self.total().wrapping_sub(self.doorbell.load_u32(0)) & CONSUMED;
        if unread >= self.entries * u32::from(SUB_CQS) {
            eprintln!("nic-model: completion queue {} overran", self.number);
            std::process::abort();
        }
        let ring = queue as usize - 1;
        let count = self.produced[ring];
        let slot = ring as u64 * u64::from(self.entries) + u64::from(count % self.entries);
        let offset = slot * u64::from(self.entry_size);
        // The phase of the first round is 1.
        let phase = u8::from((count / self.entries).is_multiple_of(2));
        let bytes = &entry.as_bytes()[..self.entry_size as usize];
        self.rings.write(offset, &bytes[..3]);
        self.rings.write(offset + 4, &bytes[4..]);
        // The flags make the entry valid.
        self.rings.store_u8(offset + 3, entry.flags | phase);
        self.produced[ring] = count.wrapping_add(1);
    }

    /// Sends a completion event if the queue is armed and has an entry to report.
    ///
    /// The adapter sees each write to the doorbell, but the model sees only the last one. If the
    /// program has polled since the last look, an arm before may be invisible. The model then takes
    /// the queue as armed: an event too many does no harm, a missing one would.
    fn notify(&mut self, cx: &mut Shared) {
        let Some(channel) = self.channel else {
            return;
        };
        let doorbell = self.doorbell.load_u32(0);
        let changed = doorbell != self.seen;
        self.seen = doorbell;
        let current = (doorbell & SEQUENCE) >> 29 == self.events_sent & 3;
        self.armed = current && (self.armed || changed);
        let unread = self.total().wrapping_sub(doorbell) & CONSUMED;
        if self.armed && unread > 0 && self.total() != self.reported {
            self.armed = false;
            self.reported = self.total();
            self.events_sent = self.events_sent.wrapping_add(1);
            cx.channels.completion(channel, self.events.user_handle);
        }
    }
}
