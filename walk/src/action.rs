//! The actions of a walk, their weights, and lists of them.

use std::fmt;

use test_support::random::Random;

macro_rules! kinds {
    ($($kind:ident = $weight:literal $name:literal),* $(,)?) => {
        /// The kind of an action.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind { $($kind),* }

        impl Kind {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns the relative frequency.
            const fn weight(self) -> usize {
                match self { $(Self::$kind => $weight),* }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),* }
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
    DropCq = 1 "drop a completion queue",
    ResizeCq = 1 "resize a completion queue",
    CreateSrq = 2 "create a shared receive queue",
    DropSrq = 1 "drop a shared receive queue",
    CreateLink = 12 "connect two queue pairs",
    DestroyEnd = 6 "destroy a queue pair",
    DropEnd = 6 "drop a queue pair",
    ToError = 1 "move a queue pair to ERR",
    Reset = 2 "reset a queue pair",
    BadRemote = 1 "write with an invalid key",
    Hold = 30 "hold memory",
    TakeBuf = 25 "take a buffer",
    DropBuf = 40 "drop a buffer",
    ForgetBuf = 1 "forget a buffer",
    WriteRegion = 30 "write to a shared region",
    CheckMemory = 8 "check all memory",
    Post = 400 "post a send",
    PostFetch = 200 "post a READ or an atomic",
    PostBatch = 80 "post a batch of sends",
    BindWindow = 40 "bind a memory window",
    InvalidateWindow = 60 "invalidate a memory window",
    InvalidateByPeer = 60 "invalidate a memory window of the peer with a message",
    CreateDatagram = 8 "create a datagram queue pair",
    DropDatagram = 4 "destroy or drop a datagram queue pair",
    ChangeAddress = 20 "hold or release an address",
    PostDatagram = 80 "post a datagram",
    PostDatagramRecv = 120 "post a receive of a datagram",
    PostRefused = 12 "post an invalid request",
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
    ScopePanic = 3 "panic in a scope",
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
    pub(crate) fn random(random: &mut Random) -> Self {
        let total: usize = Kind::ALL.iter().map(|kind| kind.weight()).sum();
        let mut left = random.below(total);
        let kind = Kind::ALL.iter().copied().find(|kind| {
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
#[derive(Clone, Debug)]
pub struct Counts(Vec<(u64, u64)>);

impl Default for Counts {
    fn default() -> Self {
        Self(vec![(0, 0); Kind::ALL.len()])
    }
}

impl Counts {
    pub(crate) fn add(&mut self, kind: Kind, done: bool) {
        let (acted, idle) = &mut self.0[kind as usize];
        *(if done { acted } else { idle }) += 1;
    }

    /// Returns the number of actions.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|(acted, idle)| acted + idle).sum()
    }

    /// Returns the names of the kinds that never had anything to act on.
    pub fn never(&self) -> Vec<&'static str> {
        let unused = |kind: &&Kind| self.0[**kind as usize].0 == 0;
        Kind::ALL
            .iter()
            .filter(unused)
            .map(|kind| kind.name())
            .collect()
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (kind, (acted, idle)) in Kind::ALL.iter().zip(&self.0) {
            writeln!(f, "{acted:>10}  {} ({idle} without an object)", kind.name())?;
        }
        Ok(())
    }
}
