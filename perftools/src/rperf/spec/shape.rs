//! The numbers that an engine runs by.

use std::time::Duration;

use super::plan::{Pattern, Plan, Service, Verb};
use super::side::Limit;
use super::tuning::Tuning;

/// The numbers an engine runs by; both ends compute the same from the same [`Spec`](super::Spec)
/// and depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What to do.
    pub plan: Plan,
    /// Bytes a message.
    pub msg_size: u32,
    /// Threads, each with queue pairs, memory and numbers of its own; what follows holds for each
    /// of them.
    pub threads: u32,
    /// How often an end that is at work says so, where nothing else would tell.
    pub heartbeat: Duration,
    /// Where data goes one way: from the server to the client.
    pub flip: bool,
    /// Queue pairs.
    pub qps: u32,
    /// Receivers of each message.
    pub receivers: u32,
    /// Data messages that may be under way in one direction, on all queue pairs together.
    pub depth: u32,
    /// Messages after whose arrival the receiver returns a credit message.
    pub batch: u32,
    /// Every so many sends of a queue pair ask for a completion.
    pub signal_every: u32,
    /// Whether the receiver's credits bound the sender.
    pub credited: bool,
    /// When the test ends.
    pub limit: Limit,
    /// Payload is checked.
    pub verify: bool,
    /// How the test is tuned.
    pub tuning: Tuning,
}

impl Shape {
    /// The share of a thread: of the messages of a test by count, and of the rate where that is
    /// limited.
    #[must_use]
    pub fn share(&self, thread: u32) -> Self {
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

    /// Credit messages that may be under way in one direction.
    pub fn credits(&self) -> u32 {
        self.depth / self.batch + 1
    }

    /// Receives that each receive queue has posted before the peer may start; those that were used
    /// are posted again, at once or so many together.
    pub fn receives(&self) -> u32 {
        let together = self.tuning.recv_list.unwrap_or(1).saturating_sub(1);
        if self.plan.verb.takes_receives() {
            self.depth + self.credits() + together
        } else {
            0
        }
    }

    /// Receive queues: one for each queue pair, or one that all share.
    pub fn receive_queues(&self) -> u32 {
        if self.tuning.srq || self.plan.service == Service::Xrc {
            1
        } else {
            self.qps
        }
    }

    /// Whether the messages for which credit is due solicit an event, so that a receiver need not
    /// wake for the others. On several queue pairs those others may come after them.
    pub fn solicits(&self) -> bool {
        let alone = self.qps == 1 && self.receivers == 1;
        self.credited && alone && self.is_reliable() && self.plan.pattern == Pattern::OneWay
    }

    /// Whether each message has a buffer of its own that is looked at.
    pub fn touches_payload(&self) -> bool {
        self.verify || self.tuning.access_received
    }

    /// Room that each send queue needs: any one may have to carry all that is under way.
    pub fn sends(&self) -> u32 {
        self.depth + self.credits() + 1
    }

    /// Places in memory that is open to the peer: one for each message under way, where each is
    /// looked at.
    pub fn exposed_slots(&self) -> u32 {
        match self.plan {
            // A number for each queue pair, as atomics of several come in no order.
            plan if plan.verb.is_atomic() => self.qps,
            // One queue pair may lag behind the others by the whole depth.
            plan if self.touches_payload() && plan.pattern != Pattern::Polled => {
                self.depth * self.qps
            }
            _ => 1,
        }
    }

    /// Places that fetches bring the peer's memory into.
    pub fn fetch_slots(&self) -> u32 {
        if self.touches_payload() {
            self.sends() * self.qps
        } else {
            1
        }
    }

    /// Buffers that messages are received into, where each has its own.
    pub fn receive_buffers(&self) -> u32 {
        if self.plan.verb == Verb::Send {
            self.receives() * self.receive_queues()
        } else {
            0
        }
    }

    /// Bytes of the memory that each end registers.
    pub fn memory(&self) -> u64 {
        let exposed = if self.plan.verb.is_one_sided() {
            self.exposed_slots()
        } else {
            0
        };
        let own = match self.plan {
            plan if plan.verb.fetches() => self.fetch_slots(),
            _ if self.touches_payload() && self.plan.pattern != Pattern::Polled => {
                self.sends() + self.receive_buffers()
            }
            // A message to send from, and one to receive into.
            plan => 1 + u32::from(plan.verb == Verb::Send),
        };
        (u64::from(exposed) + u64::from(own)) * self.stride() as u64 * u64::from(self.threads)
    }

    /// Bytes of such a place: whole words.
    pub fn stride(&self) -> usize {
        (self.msg_size as usize).next_multiple_of(8)
    }

    /// Time from one message to the next, where the rate is limited.
    pub fn gap(&self) -> Option<Duration> {
        let nanos =
            u128::from(self.msg_size) * 1_000_000_000 / u128::from(self.tuning.rate_limit?.max(1));
        Some(Duration::from_nanos(
            u64::try_from(nanos).unwrap_or(u64::MAX),
        ))
    }

    /// Whether what is sent arrives, or the connection breaks.
    pub fn is_reliable(&self) -> bool {
        self.plan.service.is_reliable()
    }
}
