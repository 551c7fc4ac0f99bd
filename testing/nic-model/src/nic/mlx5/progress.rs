//! Progress of the sending and of the receiving side of a queue pair.

use std::collections::VecDeque;

use super::cqe::Syndrome;
use super::wqe::Work;
use crate::abi::core::ModifyQp;

/// Unit of the acknowledgement timeout, in nanoseconds.
const TIMEOUT_UNIT: u64 = 4_096;
/// Shortest timeout for a peer in another process, in nanoseconds.
const REMOTE_TIMEOUT: u64 = 500_000_000;

/// A request that was started.
pub(super) struct InFlight {
    pub(super) work: Work,
    pub(super) psn: u32,
    pub(super) packets: u32,
    pub(super) result: Option<std::result::Result<(), Syndrome>>,
    /// Data of the response that the completion delivers.
    pub(super) data: Vec<u8>,
}

/// Progress of the sending side.
#[derive(Default)]
pub(super) struct Requester {
    pub(super) in_flight: VecDeque<InFlight>,
    /// Sequence number of the next request.
    pub(super) psn: u32,
    /// First request in flight that must be sent again.
    pub(super) resend: Option<usize>,
    /// Time before which nothing is sent, because the receiver was not ready.
    pub(super) resume_at: u64,
    /// Time at which the oldest request is sent again. 0 means never.
    pub(super) deadline: u64,
    pub(super) retries_left: u8,
    pub(super) rnr_retries_left: u8,
    /// A request failed: no more are fetched.
    pub(super) stopped: bool,
    /// The peer is in another process.
    pub(super) remote: bool,
}

impl Requester {
    pub(super) fn new(psn: u32, attr: &ModifyQp, remote: bool) -> Self {
        Self {
            psn: psn & 0x00ff_ffff,
            retries_left: attr.retry_cnt,
            rnr_retries_left: attr.rnr_retry,
            remote,
            ..Self::default()
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    /// Starts again with the next sequence number, after its requests were flushed.
    pub(super) fn restart(&mut self, attr: &ModifyQp) {
        *self = Self::new(self.psn, attr, self.remote);
    }

    /// Starts the timer of the oldest request.
    pub(super) fn restart_timer(&mut self, now: u64, timeout: u8) {
        self.deadline = if timeout == 0 || self.in_flight.is_empty() {
            0
        } else {
            let wait = TIMEOUT_UNIT << timeout.min(31);
            // An adapter answers at once, but another process needs a processor.
            now + if self.remote {
                wait.max(REMOTE_TIMEOUT)
            } else {
                wait
            }
        };
    }

    pub(super) fn reads_in_flight(&self) -> usize {
        let pending = |entry: &&InFlight| entry.work.is_read() && entry.result.is_none();
        self.in_flight.iter().filter(pending).count()
    }
}

/// Returns the distance from `b` to `a` in sequence numbers of 24 bits.
pub(super) fn psn_distance(a: u32, b: u32) -> i32 {
    let difference = a.wrapping_sub(b) & 0x00ff_ffff;
    ((difference << 8).cast_signed()) >> 8
}

/// Progress of the receiving side.
#[derive(Default)]
pub(super) struct Responder {
    /// Sequence number of the next request.
    pub(super) psn: u32,
    /// A missing request was reported, and has not arrived.
    pub(super) reported: bool,
    /// Sequence numbers and results of the last atomic operations.
    pub(super) atomics: VecDeque<(u32, u64)>,
    /// Number of requests that were executed.
    pub(super) executed: u64,
}

impl Responder {
    pub(super) fn new(psn: u32) -> Self {
        Self {
            psn: psn & 0x00ff_ffff,
            ..Self::default()
        }
    }
}
