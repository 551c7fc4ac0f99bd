//! The parameters of the engine.

use std::time::Duration;

use ibverbs::AccessFlags;

use super::limits::MAX_LARGE_QUEUES;
use super::plan::{Pattern, Plan};
use super::side::Limit;
use super::tuning::Tuning;

/// The parameters of the engine. Both ends compute the same shape from the same
/// [`Spec`](super::Spec) and depth.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a condition of its own"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The RDMA operations of the test.
    pub plan: Plan,
    /// Size of each message in bytes.
    pub msg_size: u32,
    /// Number of threads. Each has its own queue pairs, memory and counters; the fields below
    /// apply to each thread.
    pub threads: u32,
    /// Interval of the heartbeats, which show the peer that this end is alive.
    pub heartbeat: Duration,
    /// Reverses the direction of a one-way test, so that the server sends.
    pub flip: bool,
    /// Number of queue pairs.
    pub qps: u32,
    /// Number of receivers of each message.
    pub receivers: u32,
    /// `false` on iWARP.
    pub infiniband: bool,
    /// Maximum number of data messages in flight in one direction, on all queue pairs together.
    pub depth: u32,
    /// Number of messages after which the receiver sends a credit message.
    pub batch: u32,
    /// Number of sends of a queue pair per requested completion.
    pub signal_every: u32,
    /// `true` if the sender only sends messages for which it has credits of the receiver.
    pub credited: bool,
    /// `true` if an end that wrote to the peer's memory confirms with a read that the peer has the
    /// data. On iWARP a write completes earlier.
    pub confirms_writes: bool,
    /// End of the test: a duration or a number of messages.
    pub limit: Limit,
    /// Check each received byte.
    pub verify: bool,
    /// Tuning of requests, packets and memory.
    pub tuning: Tuning,
}

impl Shape {
    /// Returns the shape of one thread, with its share of the number of messages and of the rate
    /// limit.
    #[must_use]
    pub(crate) fn share(&self, thread: u32) -> Self {
        let threads = u64::from(self.threads.max(1));
        let limit = match self.limit {
            Limit::Messages(n) => {
                Limit::Messages(n / threads + u64::from(u64::from(thread) < n % threads))
            }
            time @ Limit::Time(_) => time,
        };
        let rate_limit = self.tuning.rate_limit.map(|rate| (rate / threads).max(1));
        Self {
            limit,
            tuning: Tuning {
                rate_limit,
                ..self.tuning
            },
            ..*self
        }
    }

    /// Returns the number of messages of a test by count, or `u64::MAX` in a test by time.
    pub(crate) fn last(&self) -> u64 {
        match self.limit {
            Limit::Messages(n) => n,
            Limit::Time(_) => u64::MAX,
        }
    }

    /// Returns the access rights that the peer needs to this end's memory.
    pub fn remote_access(&self) -> AccessFlags {
        let access = self.plan.verb.remote_access();
        if self.confirms_writes {
            access | AccessFlags::REMOTE_READ
        } else {
            access
        }
    }

    /// Returns `true` if the numbers of the messages in flight differ by less than the depth. A
    /// queue pair that lags behind then stops the others sooner, but no queue needs slots for all
    /// messages, which are too many only with many queue pairs. Soft-iWARP fails to create many
    /// small queue pairs (docs/drivers.md, fault 2).
    pub(crate) fn takes_turns(&self) -> bool {
        let is_ordered = self.is_reliable() && self.plan.service.is_ordered();
        self.qps > MAX_LARGE_QUEUES && self.infiniband && is_ordered && !self.touches_payload()
    }

    /// Returns the maximum number of data messages in flight on one queue pair in one direction.
    pub(crate) fn queue_depth(&self) -> u32 {
        self.on_one_queue_pair(self.depth)
    }

    /// Returns the maximum number of credit messages in flight in one direction.
    fn credits(&self) -> u32 {
        self.depth / self.batch + 1
    }

    /// Returns the maximum number of messages in flight on one queue pair, out of `all`.
    fn on_one_queue_pair(&self, all: u32) -> u32 {
        if self.takes_turns() {
            all.div_ceil(self.qps)
        } else {
            all
        }
    }

    /// Returns the number of receive requests that each receive queue has posted before the peer
    /// starts. Completed ones are reposted in batches.
    pub fn receives(&self) -> u32 {
        let waiting = self.tuning.recv_list.unwrap_or(1).saturating_sub(1);
        if !self.plan.verb.takes_receives() {
            0
        } else if self.receive_queues() == 1 {
            self.depth + self.credits() + waiting
        } else {
            self.queue_depth() + self.on_one_queue_pair(self.credits()) + waiting
        }
    }

    /// Returns the number of completed receives that are posted again together.
    pub(crate) fn repost_batch(&self) -> u32 {
        let default = if self.plan.is_latency() {
            // One message is in flight, so enough receives are always posted.
            (self.depth / 4).max(1)
        } else if self.solicits() {
            // The sender waits for the credit of a batch, so it cannot use these receives before.
            self.batch
        } else {
            1
        };
        self.tuning.recv_list.unwrap_or(default)
    }

    /// Returns the number of receive queues: one per queue pair, or one shared by all.
    pub(crate) fn receive_queues(&self) -> u32 {
        if self.tuning.srq || self.plan.service.always_shares_receives() {
            1
        } else {
            self.qps
        }
    }

    /// Returns `true` if only the last message of each credit batch solicits an event, so that the
    /// receiver does not wake up for the others. On several queue pairs, and over SRD, the others
    /// may arrive later.
    pub(crate) fn solicits(&self) -> bool {
        let is_ordered = self.qps == 1 && self.receivers == 1 && self.plan.service.is_ordered();
        self.credited && is_ordered && self.is_reliable() && self.plan.pattern == Pattern::OneWay
    }

    /// Returns `true` if the receiver reads the payload, so that each message has its own buffer.
    pub(crate) fn touches_payload(&self) -> bool {
        self.verify || self.tuning.access_received
    }

    /// Returns the capacity of each send queue.
    pub fn send_queue_len(&self) -> u32 {
        self.queue_depth() + self.on_one_queue_pair(self.credits()) + 1
    }

    /// Returns the capacity of the completion queue of a thread.
    pub(crate) fn completions(&self) -> u32 {
        let sends = self.send_queue_len().saturating_mul(self.qps);
        let receives = self.receives().saturating_mul(self.receive_queues());
        sends.saturating_add(receives)
    }

    /// Returns the number of message slots in the memory registered for remote access: one per
    /// message in flight if the receiver reads the payload.
    pub(crate) fn exposed_slots(&self) -> u32 {
        match self.plan {
            // One counter per queue pair, because atomics of different queue pairs are unordered.
            plan if plan.verb.is_atomic() => self.qps,
            // One queue pair may lag behind the others by the whole depth.
            plan if self.touches_payload() && plan.pattern != Pattern::Polled => {
                self.depth * self.qps
            }
            _ => 1,
        }
    }

    /// Returns the number of slots that RDMA reads and atomics write the peer's data into.
    pub(crate) fn fetch_slots(&self) -> u32 {
        if self.touches_payload() {
            self.send_queue_len() * self.qps
        } else {
            1
        }
    }

    /// Returns the number of receive buffers if each message has its own buffer.
    pub(crate) fn receive_buffers(&self) -> u32 {
        if self.plan.receives_into_memory() {
            self.receives() * self.receive_queues()
        } else {
            0
        }
    }

    /// Returns the size of the memory that each end registers, in bytes.
    pub fn memory(&self) -> u64 {
        self.thread_memory() * u64::from(self.threads)
    }

    /// Returns the size of the memory that each thread of an end registers, in bytes.
    pub(crate) fn thread_memory(&self) -> u64 {
        let exposed = if self.plan.verb.is_one_sided() {
            self.exposed_slots()
        } else {
            0
        };
        let local = match self.plan {
            plan if plan.verb.fetches() => self.fetch_slots(),
            _ if self.touches_payload() && self.plan.pattern != Pattern::Polled => {
                self.send_queue_len() + self.receive_buffers()
            }
            // One buffer to send from, and one to receive into.
            plan => 1 + u32::from(plan.receives_into_memory()),
        };
        let slots = u64::from(exposed) + u64::from(local);
        slots * self.stride() as u64
    }

    /// Returns the size of a slot in bytes: the message size, rounded up to 8 bytes.
    pub(crate) fn stride(&self) -> usize {
        (self.msg_size as usize).next_multiple_of(8)
    }

    /// Returns the time from one message to the next if the rate is limited.
    pub(crate) fn gap(&self) -> Option<Duration> {
        let nanos =
            u128::from(self.msg_size) * 1_000_000_000 / u128::from(self.tuning.rate_limit?.max(1));
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    /// Returns `true` if the service delivers every message or reports an error.
    pub fn is_reliable(&self) -> bool {
        self.plan.service.is_reliable()
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::fit::Bounds;
    use crate::spec::plan::Service;
    use crate::spec::{Spec, test::Test};

    #[test]
    fn queue_pairs_share_the_messages_in_flight() {
        // As on Soft-RoCE.
        let bounds = Bounds {
            max_qp_wr: 16_384,
            max_cqe: 32_767,
            max_srq_wr: 32_767,
            ..Bounds::unlimited()
        };
        let fit = |test, qps, change: fn(&mut Spec)| {
            let mut spec = Spec {
                qps,
                depth: 8,
                msg_size: 8,
                ..Spec::new(test)
            };
            change(&mut spec);
            let shape = spec.fit(&bounds).unwrap();
            assert!(shape.completions() <= bounds.max_cqe, "{shape:?}");
            (shape.depth, shape.send_queue_len(), shape.receives())
        };
        // Each queue has slots for its messages, for a credit, and a send queue for one more.
        assert_eq!(fit(Test::RcBw, 65, |_| {}), (520, 10, 9));
        assert_eq!(fit(Test::RcBw, 1024, |_| {}), (8192, 10, 9));
        assert_eq!(fit(Test::RcBw, 4096, |_| {}), (4096, 3, 2));
        assert_eq!(fit(Test::RcRdmaWriteBw, 4096, |s| s.immediate = None).1, 3);
        // The shared receive queue has slots for all messages and credits.
        assert_eq!(fit(Test::RcBw, 65, |s| s.tuning.srq = true), (520, 10, 525));
        // Any queue pair may have to hold all messages.
        assert_eq!(fit(Test::RcBw, 16, |_| {}), (128, 134, 133));
        assert_eq!(fit(Test::RcBw, 64, |_| {}), (248, 254, 253));
        assert_eq!(fit(Test::UcBw, 65, |_| {}), (245, 251, 250));
        assert_eq!(fit(Test::RcBw, 65, |s| s.verify = true), (245, 251, 250));
    }

    #[test]
    fn messages_that_overtake_others_are_not_solicited() {
        for (test, solicits, receives_into_memory) in [
            (Test::RcBw, true, true),
            (Test::DcBw, true, true),
            (Test::SrdBw, false, true),
            // The provider of EFA keeps receives without memory from the adapter.
            (Test::SrdRdmaWriteBw, false, true),
            (Test::DcRdmaWriteBw, true, false),
        ] {
            let shape = Spec::new(test).fit(&Bounds::unlimited()).unwrap();
            assert_eq!(shape.solicits(), solicits, "{test:?}");
            let has_buffers = shape.receive_buffers() > 0;
            assert_eq!(has_buffers, receives_into_memory, "{test:?}");
        }
        let two = Spec {
            qps: 2,
            ..Spec::new(Test::DcBw)
        };
        let shape = two.fit(&Bounds::unlimited()).unwrap();
        assert_eq!(
            (shape.plan.service, shape.receive_queues()),
            (Service::Dc, 1)
        );
    }
}
