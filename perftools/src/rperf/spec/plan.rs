//! What a test does with the wire, as data: over which service, by which verb, in which pattern.
//! One engine runs them all.

use ibverbs::AccessFlags;
use serde::{Deserialize, Serialize};

/// The largest message, whatever the device could: RDMA itself ends at 2 GiB.
pub const MAX_MESSAGE: u64 = 1 << 30;

/// The transport service of the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
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
    /// Whether what is sent arrives, or the connection breaks.
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

/// What one message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// A send, into a receive of the peer.
    Send,
    /// An RDMA write: the peer is not told.
    Write,
    /// An RDMA write with immediate data, which takes a receive of the peer.
    WriteImm,
    /// An RDMA read.
    Read,
    /// An atomic compare-and-swap.
    CompareSwap,
    /// An atomic fetch-and-add.
    FetchAdd,
}

impl Verb {
    /// Whether each message takes a receive of the peer, so that the peer knows of it.
    pub fn takes_receives(self) -> bool {
        matches!(self, Self::Send | Self::WriteImm)
    }

    /// Whether it works on 8 bytes of the peer.
    pub fn is_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Whether something comes back from the peer's memory.
    pub fn fetches(self) -> bool {
        self == Self::Read || self.is_atomic()
    }

    /// Whether it needs memory that is open to the peer.
    pub fn is_one_sided(self) -> bool {
        self != Self::Send
    }

    /// Returns the access rights that the peer needs to this end's memory.
    pub fn remote_access(self) -> AccessFlags {
        match self {
            Verb::Send => AccessFlags::empty(),
            Verb::Write | Verb::WriteImm => AccessFlags::REMOTE_WRITE,
            Verb::Read => AccessFlags::REMOTE_READ,
            Verb::CompareSwap | Verb::FetchAdd => AccessFlags::REMOTE_ATOMIC,
        }
    }
}

/// How messages follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// From the client, many at a time.
    OneWay,
    /// From both ends at once.
    BothWays,
    /// One to and fro; or, where the peer takes no part, one at a time.
    PingPong,
    /// One to and fro, which the other end finds by looking at its memory.
    Polled,
}

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Plan {
    /// Over which service.
    pub service: Service,
    /// By which verb.
    pub verb: Verb,
    /// In which pattern.
    pub pattern: Pattern,
}

impl Plan {
    /// Whether the time of one message is measured, not the volume of many.
    pub fn is_latency(self) -> bool {
        matches!(self.pattern, Pattern::PingPong | Pattern::Polled)
    }

    /// Whether a latency is that of the way there and back, as nobody answers.
    pub fn is_round_trip(self) -> bool {
        self.pattern == Pattern::PingPong && !self.verb.takes_receives()
    }

    /// Whether each end's software takes what the other sends.
    pub fn has_receiver(self) -> bool {
        self.verb.takes_receives() || self.pattern == Pattern::Polled
    }

    /// The plan without immediate data: writes that the peer finds by looking, or not at all.
    #[must_use]
    pub fn without_immediate(self) -> Self {
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
