//! The RDMA operations of a test, as data: transport service, verb and pattern. One engine runs all
//! plans.

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
}

impl Service {
    /// Returns `true` if the service delivers every message or breaks the connection.
    pub fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc)
    }
}

impl std::fmt::Display for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC (reliable connections)",
            Self::Uc => "UC (unreliable connections)",
            Self::Ud => "UD (unreliable datagrams)",
            Self::Xrc => "XRC (extended reliable connections)",
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
        matches!(self, Self::Send | Self::WriteImm)
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
        self != Self::Send
    }

    /// Returns the access rights that the verb needs to the memory of the other end.
    pub fn remote_access(self) -> AccessFlags {
        match self {
            Verb::Send => AccessFlags::empty(),
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
