//! The actions of a walk, their weights, and lists of them.

use std::fmt;

use test_support::random::Random;

use crate::setup::{Need, Setup};

macro_rules! need {
    () => {
        Need::Nothing
    };
    ($need:ident) => {
        Need::$need
    };
}

macro_rules! kinds {
    ($($kind:ident = $weight:literal $name:literal $(if $need:ident)?),* $(,)?) => {
        /// The kind of an action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind { $($kind),* }

        impl Kind {
            const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns the kinds that a device supports.
            pub(crate) fn supported(setup: &Setup) -> Vec<Self> {
                let supported = |kind: &Self| setup.has(kind.need());
                Self::ALL.iter().copied().filter(supported).collect()
            }

            /// Returns the relative frequency.
            const fn weight(self) -> usize {
                match self { $(Self::$kind => $weight),* }
            }

            const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
            }

            /// Returns what the device must support.
            fn need(self) -> Need {
                match self { $(Self::$kind => need!($($need)?)),* }
            }
        }
    };
}

kinds! {
    AllocPd = 3 "allocate a protection domain",
    DropPd = 3 "drop a protection domain",
    CreatePool = 8 "create a pool",
    DropPool = 2 "drop a pool",
    CreateRegion = 6 "create a shared region",
    DropRegion = 1 "drop a shared region",
    ReclaimRegion = 1 "convert a shared region to a buffer",
    CreateFrozen = 12 "freeze a buffer",
    DropFrozen = 10 "thaw or drop frozen memory",
    CreateSink = 4 "create a sink",
    DropSink = 1 "drop a sink",
    CreateCq = 3 "create a completion queue",
    DropCq = 2 "drop a completion queue",
    ResizeCq = 1 "resize a completion queue" if CqResizing,
    CreateSrq = 2 "create a shared receive queue" if Srqs,
    DropSrq = 2 "drop a shared receive queue" if Srqs,
    CreateLink = 12 "connect two queue pairs" if Connections,
    DestroyEnd = 6 "destroy a queue pair",
    DropEnd = 6 "drop a queue pair",
    ReplaceEnd = 6 "replace a queue pair before its completions are polled" if Connections,
    ToError = 1 "move a queue pair to ERR",
    Reset = 2 "reset a queue pair" if Resets,
    BadRemote = 1 "write with an invalid key" if Connections,
    Hold = 30 "hold memory",
    Release = 10 "release held memory",
    TakeBuf = 25 "take a buffer",
    DropBuf = 40 "drop a buffer",
    ForgetBuf = 1 "forget a buffer",
    WriteRegion = 30 "write to a shared region",
    CheckMemory = 8 "check all memory",
    Post = 400 "post a send",
    PostFetch = 200 "post a READ or an atomic" if Reads,
    PostBatch = 80 "post a batch of sends",
    BindWindow = 40 "bind a memory window" if Windows,
    InvalidateWindow = 60 "invalidate a memory window" if Windows,
    InvalidateByPeer = 60 "invalidate a memory window of the peer with a message" if Windows,
    CreateDatagram = 8 "create a datagram queue pair" if Datagrams,
    ChangeAddress = 20 "hold or release an address" if Datagrams,
    PostRefused = 12 "post an invalid request",
    PostForeign = 12 "post held memory of another queue pair" if Connections,
    OutOfBounds = 12 "use memory out of bounds",
    PostRecv = 260 "post a receive",
    RecvBatch = 120 "post a batch of receives",
    Poll = 250 "poll",
    PollShuffled = 60 "poll, and retire in another order",
    PollPartly = 60 "poll, and leave completions",
    RetireWrong = 4 "retire on the wrong queue",
    DropCompletion = 4 "drop a completion",
    Await = 60 "await completions",
    Settle = 12 "wait until requests complete",
    Scope = 60 "run a scope",
    ScopePanic = 3 "panic in a scope" if BusyDestroy,
    OtherThread = 40 "act on another thread",
    TwoThreads = 20 "post on two threads",
}

/// An action: its kind, and a seed for its choices. It stays meaningful if other actions of the
/// list are omitted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Action {
    pub(crate) kind: Kind,
    pub(crate) seed: u64,
}

impl Action {
    /// Returns an action of one of these kinds.
    pub(crate) fn random(kinds: &[Kind], random: &mut Random) -> Self {
        let total: usize = kinds.iter().map(|kind| kind.weight()).sum();
        let mut left = random.below(total);
        let kind = kinds.iter().copied().find(|kind| {
            let found = left < kind.weight();
            left = left.saturating_sub(kind.weight());
            found
        });
        Self {
            kind: kind.unwrap_or(Kind::Poll),
            seed: random.next_u64() | 1,
        }
    }

    /// Returns the generator for the choices.
    pub(crate) fn choices(self) -> Random {
        let mut random = Random::new(self.seed);
        random.next_u64();
        random
    }
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{:x}", self.kind, self.seed)
    }
}

/// Number of actions of each kind: those that were done, and those that had nothing to act on.
#[derive(Clone, Debug, Default)]
pub struct Counts(Vec<(Kind, u64, u64)>);

impl Counts {
    /// Adds the kinds that are not counted yet.
    pub(crate) fn include(&mut self, kinds: &[Kind]) {
        for &kind in kinds {
            if self.0.iter().all(|count| count.0 != kind) {
                self.0.push((kind, 0, 0));
            }
        }
    }

    pub(crate) fn add(&mut self, kind: Kind, done: bool) {
        for (_, acted, idle) in self.0.iter_mut().filter(|count| count.0 == kind) {
            *(if done { acted } else { idle }) += 1;
        }
    }

    /// Returns the number of actions.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(_, acted, idle)| acted + idle).sum()
    }

    /// Returns the names of the kinds that never had anything to act on.
    pub fn never(&self) -> Vec<&'static str> {
        let unused = self.0.iter().filter(|(_, acted, _)| *acted == 0);
        unused.map(|(kind, ..)| kind.name()).collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, acted, idle) in &self.0 {
            writeln!(f, "{acted:>10}  {} ({idle} without an object)", kind.name())?;
        }
        Ok(())
    }
}
