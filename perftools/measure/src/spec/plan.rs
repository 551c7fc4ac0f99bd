//! The RDMA operations of a test, as data: transport service, verb and pattern. One engine runs all
//! plans.

use super::tuning::Tuning;
use ibverbs::AccessFlags;
use serde::{Deserialize, Serialize};

/// Maximum message size in bytes. RDMA itself allows 2 GiB.
pub const MAX_MESSAGE: u64 = 1 << 30;

/// The transport service of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Extended reliable connection.
    Xrc,
    /// Scalable reliable datagram, which EFA has.
    Srd,
    /// Dynamically connected transport, which mlx5 has.
    Dc,
}

impl Service {
    /// Returns the number of targets of each initiator of DC, and 1 for the other services.
    pub(crate) fn targets(self, tuning: &Tuning) -> u32 {
        match self {
            Self::Dc => tuning.dc_targets.unwrap_or(1),
            _ => 1,
        }
    }

    /// Returns `true` if the service delivers every message or reports an error.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Srd | Self::Dc)
    }

    /// Returns `true` if messages arrive, and requests complete, in the order in which they were
    /// posted.
    pub fn is_ordered(self) -> bool {
        self != Self::Srd
    }

    /// Returns `true` if messages must carry their numbers, because they may be lost or overtake
    /// each other.
    pub fn numbers_messages(self) -> bool {
        !self.is_reliable() || !self.is_ordered()
    }

    /// Returns `true` if rperf can connect the queue pairs with rdma_cm.
    pub fn uses_cm(self) -> bool {
        matches!(self, Self::Rc | Self::Ud)
    }

    /// Returns `true` if a queue pair has a path of its own, with an MTU. Otherwise each message is
    /// a datagram.
    pub fn has_path(self) -> bool {
        !matches!(self, Self::Ud | Self::Srd)
    }

    /// Returns `true` if queue pairs receive only from a shared receive queue.
    pub fn always_shares_receives(self) -> bool {
        matches!(self, Self::Xrc | Self::Dc)
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC (reliable connections)",
            Self::Uc => "UC (unreliable connections)",
            Self::Ud => "UD (unreliable datagrams)",
            Self::Xrc => "XRC (extended reliable connections)",
            Self::Srd => "SRD (scalable reliable datagrams)",
            Self::Dc => "DC (dynamically connected transport)",
        })
    }
}

/// The verb that transfers one message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// A send, which consumes a receive request of the peer.
    Send,
    /// A send with immediate data, on services whose sends otherwise have none.
    SendImm,
    /// An RDMA write, which does not notify the peer.
    Write,
    /// An RDMA write with immediate data, which consumes a receive request of the peer.
    WriteImm,
    /// An RDMA read.
    Read,
    /// An atomic compare-and-swap.
    CompareSwap,
    /// An atomic fetch-and-add.
    FetchAdd,
}

impl Verb {
    /// Returns `true` if each message consumes a receive request of the peer, which notifies it.
    pub fn takes_receives(self) -> bool {
        matches!(self, Self::Send | Self::SendImm | Self::WriteImm)
    }

    /// Returns `true` if the verb is an atomic operation on 8 bytes of the peer.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns `true` if the verb returns data from the peer's memory.
    pub fn fetches(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    /// Returns `true` if the verb accesses memory that the peer registered for remote access.
    pub fn is_one_sided(self) -> bool {
        !matches!(self, Self::Send | Self::SendImm)
    }

    /// Returns the access rights that the verb needs to the memory of the other end.
    pub(crate) fn remote_access(self) -> AccessFlags {
        match self {
            Verb::Send | Verb::SendImm => AccessFlags::empty(),
            Verb::Write | Verb::WriteImm => AccessFlags::REMOTE_WRITE,
            Verb::Read => AccessFlags::REMOTE_READ,
            Verb::CompareSwap | Verb::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        }
    }
}

/// Order in which the ends send their messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// One end sends, with many messages in flight.
    OneWay,
    /// Both ends send at the same time, with many messages in flight.
    BothWays,
    /// One message in flight: the ends send in turn, or the client alone if the verb does not
    /// notify the peer.
    PingPong,
    /// One message in flight: the ends write in turn, and each one polls its memory for the write.
    Polled,
}

/// The RDMA operations of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Plan {
    /// Transport service.
    pub service: Service,
    /// Verb that transfers each message.
    pub verb: Verb,
    /// Order in which the ends send.
    pub pattern: Pattern,
}

impl Plan {
    /// Returns `true` if the test measures latency instead of bandwidth.
    pub fn is_latency(self) -> bool {
        matches!(self.pattern, Pattern::PingPong | Pattern::Polled)
    }

    /// Returns `true` if the latency is that of a round trip, because the peer does not send.
    pub(crate) fn is_round_trip(self) -> bool {
        self.pattern == Pattern::PingPong && !self.verb.takes_receives()
    }

    /// Returns `true` if the software of the receiving end sees each message.
    pub fn has_receiver(self) -> bool {
        self.verb.takes_receives() || self.pattern == Pattern::Polled
    }

    /// Returns `true` if receives need memory. With other verbs than send they take only credits
    /// and immediate data. But the provider of EFA keeps receives without memory from the adapter
    /// (docs/drivers.md).
    pub(crate) fn receives_into_memory(self) -> bool {
        let is_send = !self.verb.is_one_sided();
        is_send || self.verb == Verb::WriteImm && self.service == Service::Srd
    }

    /// Returns `true` if messages that are not RDMA writes carry their numbers as immediate data.
    pub(crate) fn numbers_messages(self) -> bool {
        self.service.numbers_messages() || self.verb == Verb::SendImm
    }

    /// Returns the plan with immediate data.
    #[must_use]
    pub(crate) fn with_immediate(self) -> Self {
        let is_plain_send = self.verb == Verb::Send && !self.service.numbers_messages();
        let verb = if is_plain_send {
            Verb::SendImm
        } else {
            self.verb
        };
        Self { verb, ..self }
    }

    /// Returns the plan without immediate data: RDMA writes that the peer detects by polling its
    /// memory (ping-pong), or not at all.
    #[must_use]
    pub(crate) fn without_immediate(self) -> Self {
        if self.verb != Verb::WriteImm {
            return self;
        }
        let pattern = if self.pattern == Pattern::PingPong {
            Pattern::Polled
        } else {
            self.pattern
        };
        Self {
            verb: Verb::Write,
            pattern,
            ..self
        }
    }
}
