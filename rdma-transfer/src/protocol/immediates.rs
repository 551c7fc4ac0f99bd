//! The counters of immediates.

use std::collections::hash_map::{Entry, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ibverbs::{Error, ErrorKind, Result};
use rdmacm::internal::PollWindow;

use crate::failure::lock;
use crate::protocol::signal::{Poll, Signal};

/// Maximum number of different values that are counted for a peer at the same time, and for all
/// peers together that are gone. The limits bound the memory that a peer can make this engine use.
const MAX_VALUES: usize = 1 << 16;

/// A counter of the transfers that have arrived with one immediate value, from all peers of an
/// engine ([`Engine::imm_counter`](crate::Engine::imm_counter)).
///
/// A peer can use 65,536 different values before the program has waited for them. The next one
/// disconnects it. Transfers still count after the program has dropped their peer. But if all
/// dropped peers have left more than 65,536 values, those of the peer with the most are forgotten.
///
/// # Example
/// ```no_run
/// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
/// use std::time::Duration;
/// // Two transfers with the immediate 7.
/// engine.imm_counter(7).wait(2, Duration::from_secs(10))?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ImmCounter {
    immediates: Arc<Immediates>,
    value: u32,
    /// Counts what has arrived, for a thread that waits.
    engine: Weak<dyn Poll>,
}

impl ImmCounter {
    pub(crate) fn new(immediates: &Arc<Immediates>, value: u32, engine: Weak<dyn Poll>) -> Self {
        Self {
            immediates: Arc::clone(immediates),
            value,
            engine,
        }
    }

    /// Returns the number of transfers that have arrived and that no [`wait`](Self::wait) has
    /// subtracted.
    pub fn count(&self) -> u64 {
        lock(&self.immediates.counts).total(self.value)
    }

    /// Waits until `transfers` transfers have arrived, and subtracts them from the counter. Their
    /// bytes are then visible in the region.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]; the counter is unchanged. If the sender is gone,
    /// [`Peer::is_connected`](crate::Peer::is_connected) returns `false`.
    pub fn wait(&self, transfers: u64, timeout: Duration) -> Result<()> {
        let value = self.value;
        let Immediates {
            counts,
            arrived,
            window,
        } = &*self.immediates;
        let poll = || {
            if let Some(engine) = self.engine.upgrade() {
                engine.poll_for_caller();
            }
        };
        let is_waiting = |counts: &Counts| counts.total(value) < transfers;
        let mut counts = arrived.wait_while(counts, timeout, window, poll, is_waiting);
        let arrived = counts.total(value);
        if arrived < transfers {
            let what = format!(
                "{arrived} of {transfers} transfers with value {value} have arrived after \
                 {timeout:?}"
            );
            return Err(Error::new(ErrorKind::TimedOut, "immediates", what));
        }
        counts.subtract(value, transfers);
        Ok(())
    }
}

impl fmt::Debug for ImmCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImmCounter")
            .field("value", &self.value)
            .field("count", &self.count())
            .finish()
    }
}

/// Number of transfers by value. A value without transfers has no entry.
type Values = HashMap<u32, u64>;

#[derive(Debug, Default)]
struct Counts {
    totals: Values,
    /// The same for each peer, by its number.
    peers: HashMap<u64, PeerCounts>,
    next_peer: u64,
}

#[derive(Debug, Default)]
struct PeerCounts {
    values: Values,
    is_gone: bool,
}

impl Counts {
    fn total(&self, value: u32) -> u64 {
        self.totals.get(&value).copied().unwrap_or(0)
    }

    fn subtract(&mut self, value: u32, mut transfers: u64) {
        subtract(&mut self.totals, value, transfers);
        for peer in self.peers.values_mut() {
            transfers -= subtract(&mut peer.values, value, transfers);
        }
        self.peers
            .retain(|_, peer| !peer.is_gone || !peer.values.is_empty());
    }

    /// Forgets values of peers that are gone if there are too many, first those of the peer with
    /// the most of them.
    fn forget(&mut self) {
        loop {
            let gone = self.peers.iter().filter(|(_, peer)| peer.is_gone);
            let lens = gone.map(|(&number, peer)| (peer.values.len(), number));
            let total: usize = lens.clone().map(|(len, _)| len).sum();
            let Some((_, largest)) = lens.max().filter(|_| total > MAX_VALUES) else {
                return;
            };
            for (value, transfers) in self.peers.remove(&largest).unwrap_or_default().values {
                subtract(&mut self.totals, value, transfers);
            }
        }
    }
}

/// Subtracts up to this number of transfers, and returns how many.
fn subtract(values: &mut Values, value: u32, transfers: u64) -> u64 {
    let Entry::Occupied(mut count) = values.entry(value) else {
        return 0;
    };
    let subtracted = transfers.min(*count.get());
    *count.get_mut() -= subtracted;
    if *count.get() == 0 {
        count.remove();
    }
    subtracted
}

/// The immediates that have arrived at an engine.
#[derive(Debug, Default)]
pub(crate) struct Immediates {
    counts: Mutex<Counts>,
    arrived: Signal,
    window: PollWindow,
}

impl Immediates {
    /// Waits poll for up to `poll_time` before they sleep.
    pub(crate) fn new(poll_time: Duration) -> Self {
        Self {
            window: PollWindow::new(poll_time),
            ..Self::default()
        }
    }
}

/// The immediates that have arrived from a peer, which is gone when this value is dropped.
#[derive(Debug)]
pub(crate) struct PeerImmediates {
    immediates: Arc<Immediates>,
    number: u64,
}

impl PeerImmediates {
    pub(crate) fn new(immediates: &Arc<Immediates>) -> Self {
        let mut counts = lock(&immediates.counts);
        let number = counts.next_peer;
        counts.next_peer += 1;
        counts.peers.insert(number, PeerCounts::default());
        Self {
            immediates: Arc::clone(immediates),
            number,
        }
    }

    /// Counts one transfer.
    pub(crate) fn add(&self, value: u32) -> Result<()> {
        let mut counts = lock(&self.immediates.counts);
        let Counts { totals, peers, .. } = &mut *counts;
        let values = &mut peers.entry(self.number).or_default().values;
        if values.len() >= MAX_VALUES && !values.contains_key(&value) {
            let what = format!(
                "{MAX_VALUES} different values have arrived from the peer and were not waited for"
            );
            return Err(Error::new(ErrorKind::Malformed, "immediates", what)
                .with_help("use fewer values, or wait for each of them"));
        }
        for values in [values, totals] {
            *values.entry(value).or_insert(0) += 1;
        }
        self.immediates.arrived.notify();
        Ok(())
    }
}

impl Drop for PeerImmediates {
    fn drop(&mut self) {
        let mut counts = lock(&self.immediates.counts);
        counts.peers.entry(self.number).or_default().is_gone = true;
        counts.forget();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct NoEngine;

    impl Poll for NoEngine {
        fn poll_for_caller(&self) {}
    }

    fn counter(immediates: &Arc<Immediates>, value: u32) -> ImmCounter {
        ImmCounter::new(immediates, value, Weak::<NoEngine>::new())
    }

    #[test]
    fn waiting_subtracts_what_it_waited_for() {
        let immediates = Arc::new(Immediates::default());
        let counter = counter(&immediates, 5);
        let peers = [(); 2].map(|()| PeerImmediates::new(&immediates));
        for (peer, value) in [(0, 5), (1, 6), (1, 5), (0, 5)] {
            peers[peer].add(value).expect("few values");
        }
        let error = counter.wait(4, Duration::ZERO).expect_err("three arrived");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(counter.count(), 3, "unchanged");
        counter.wait(1, Duration::ZERO).expect("arrived");
        assert_eq!(counter.count(), 2);
        counter.wait(2, Duration::ZERO).expect("arrived");
        let counts = lock(&immediates.counts);
        assert_eq!(counts.totals, HashMap::from([(6, 1)]));
        let values = peers
            .each_ref()
            .map(|peer| &counts.peers[&peer.number].values);
        assert_eq!(values, [&HashMap::new(), &counts.totals]);
    }

    #[test]
    fn waiting_ends_when_the_last_transfer_arrives() {
        let immediates = Arc::new(Immediates::default());
        let counter = counter(&immediates, 5);
        let peer = PeerImmediates::new(&immediates);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| counter.wait(2, Duration::from_secs(60)));
            peer.add(5).expect("few values");
            peer.add(5).expect("few values");
            waiting.join().expect("no panic").expect("arrived");
        });
    }

    /// Returns a peer from which as many values have arrived as possible.
    fn fill(immediates: &Arc<Immediates>, values: std::ops::RangeInclusive<u32>) -> PeerImmediates {
        let peer = PeerImmediates::new(immediates);
        let last = *values.end();
        values.for_each(|value| peer.add(value).expect("within the limit"));
        let error = peer.add(last + 1).expect_err("beyond the limit");
        assert_eq!(error.kind(), ErrorKind::Malformed);
        peer.add(last).expect("a known value");
        peer
    }

    #[test]
    fn the_values_of_a_peer_do_not_limit_those_of_another() {
        let immediates = Arc::new(Immediates::default());
        let count = |value| counter(&immediates, value).count();
        let last = u32::try_from(MAX_VALUES).expect("fits");
        let hostile = fill(&immediates, 1..=last);
        let honest = PeerImmediates::new(&immediates);
        honest.add(1).expect("its first value");
        honest.add(0).expect("its second value");
        assert_eq!([0, 1, 2, last].map(count), [1, 2, 1, 2]);
        drop(hostile);
        assert_eq!([0, 1, 2, last].map(count), [1, 2, 1, 2], "still counted");
        drop(honest);
        assert_eq!(
            [0, 1, 2, last].map(count),
            [1, 1, 0, 0],
            "those of one are forgotten"
        );
        assert_eq!(lock(&immediates.counts).peers.len(), 1);
        counter(&immediates, 0)
            .wait(1, Duration::ZERO)
            .expect("of a peer that is gone");
        counter(&immediates, 1)
            .wait(1, Duration::ZERO)
            .expect("of a peer that is gone");
        let counts = lock(&immediates.counts);
        assert!(counts.peers.is_empty() && counts.totals.is_empty());
    }
}
