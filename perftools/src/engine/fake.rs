//! A wire within the process, for tests: it breaks when a message meets no posted receive, as iWARP does.

use std::collections::VecDeque;
use std::result::Result as Either;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use super::{Exposed, Peer, Progress, Wire};
use crate::config::{Limit, Shape};
use crate::error::{Error, Result};
use crate::test::Test;

#[derive(Debug, Default)]
struct Inbox {
    receives: u32,
    /// Numbers of messages that have arrived; `Err` is a credit, up to a number.
    messages: VecDeque<Either<u64, u64>>,
    broken: bool,
    finished: Option<u64>,
    failure: Option<Error>,
}

type Shared = Arc<(Mutex<Inbox>, Condvar)>;

/// One end of a fake connection; its own [`Peer`] as well.
#[derive(Debug)]
pub(crate) struct FakeWire {
    mine: Shared,
    theirs: Shared,
    shape: Shape,
    signalled: u64,
    posted: u64,
    used: u32,
    reached: u64,
    /// Loses each message whose number divides by this.
    pub(crate) loses: u64,
    /// Drops every message from this one on.
    pub(crate) mute_after: u64,
}

/// The control connection of a fake end.
#[derive(Debug, Clone)]
pub(crate) struct FakePeer {
    mine: Shared,
    theirs: Shared,
}

/// The shape of a test with messages of 100 bytes.
pub(crate) fn shape(test: Test, depth: u32, limit: Limit) -> Shape {
    let batch = (depth / 4).max(1);
    let plan = test.plan().unwrap();
    let credited = plan.verb.takes_receives();
    Shape {
        tuning: crate::tuning::Tuning::default(),
        plan,
        msg_size: 100,
        qps: 1,
        depth,
        batch,
        signal_every: batch,
        credited,
        limit,
        verify: false,
    }
}

/// Two connected ends.
pub(crate) fn pair(shape: &Shape) -> [(FakeWire, FakePeer); 2] {
    let (a, b) = (Shared::default(), Shared::default());
    [(a.clone(), b.clone()), (b, a)].map(|(mine, theirs)| {
        let wire = FakeWire {
            mine: mine.clone(),
            theirs: theirs.clone(),
            shape: *shape,
            signalled: 0,
            posted: 0,
            used: 0,
            reached: 0,
            loses: 0,
            mute_after: u64::MAX,
        };
        (wire, FakePeer { mine, theirs })
    })
}

impl FakeWire {
    fn deliver(&self, message: Either<u64, u64>) -> Result<()> {
        let mut inbox = self.theirs.0.lock().unwrap();
        if inbox.receives == 0 && !self.shape.is_reliable() {
            return Ok(());
        }
        if inbox.receives == 0 {
            inbox.broken = true;
            return Err(Error::device("a message met no receive"));
        }
        inbox.receives -= 1;
        inbox.messages.push_back(message);
        self.theirs.1.notify_all();
        Ok(())
    }
}

impl Wire for FakeWire {
    fn exposed(&self) -> Option<Exposed> {
        None
    }

    fn peer_exposes(&mut self, _: Exposed) {}

    fn send(&mut self, first: u64, count: u32, signal_every: u32, last: u64) -> Result<()> {
        for n in first..first + u64::from(count) {
            let lost = self.loses > 0 && n % self.loses == 0;
            if n < self.mute_after && !lost && self.shape.plan.has_receiver() {
                self.deliver(Ok(n))?;
            }
            self.posted += 1;
            if self.posted % u64::from(signal_every) == 0 || n + 1 >= last {
                self.signalled = self.posted;
            }
        }
        Ok(())
    }

    fn send_credit(&mut self, reached: u64) -> Result<()> {
        self.signalled = self.posted;
        self.deliver(Err(reached))
    }

    fn post_receives(&mut self) -> Result<()> {
        self.mine.0.lock().unwrap().receives += self.shape.receives();
        Ok(())
    }

    fn repost(&mut self) -> Result<()> {
        self.mine.0.lock().unwrap().receives += std::mem::take(&mut self.used);
        Ok(())
    }

    fn poll(&mut self) -> Result<Progress> {
        let mut inbox = self.mine.0.lock().unwrap();
        if inbox.broken {
            return Err(Error::device("the connection broke"));
        }
        let mut progress =
            Progress { sent: self.signalled, completions: u32::from(self.signalled > 0), ..Progress::default() };
        self.signalled = 0;
        for message in inbox.messages.drain(..) {
            progress.completions += 1;
            self.used += 1;
            match message {
                Ok(number) => {
                    progress.data += 1;
                    progress.bytes += u64::from(self.shape.msg_size);
                    self.reached = number + 1;
                    progress.reached = self.reached;
                }
                Err(reached) => {
                    progress.credits += 1;
                    progress.acked = reached;
                }
            }
        }
        Ok(progress)
    }

    fn arm(&mut self) -> Result<()> {
        Ok(())
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        let inbox = self.mine.0.lock().unwrap();
        if inbox.messages.is_empty() {
            drop(self.mine.1.wait_timeout(inbox, limit.min(Duration::from_millis(2))).unwrap());
        }
        Ok(())
    }

    fn check(&mut self) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn verified(&self) -> u64 {
        0
    }
}

impl FakePeer {
    pub(crate) fn fail_other(&self, error: Error) {
        self.theirs.0.lock().unwrap().failure = Some(error);
    }
}

impl Peer for FakePeer {
    fn finish(&self, sent: u64) -> Result<()> {
        self.theirs.0.lock().unwrap().finished = Some(sent);
        self.theirs.1.notify_all();
        Ok(())
    }

    fn finished(&self) -> Option<u64> {
        self.mine.0.lock().unwrap().finished
    }

    fn failure(&self) -> Option<Error> {
        self.mine.0.lock().unwrap().failure.clone()
    }

    fn explain(&self, error: Error) -> Error {
        error
    }
}

mod tests {
    use super::*;
    use crate::args::options::Wait;
    use crate::config::Side;
    use crate::engine::run::run;
    use crate::engine::{Outcome, Role};
    use std::thread;

    fn side(wait: Wait, timeout_ms: u64) -> Side {
        Side::new(wait, Duration::from_millis(timeout_ms))
    }

    fn both(shape: Shape, wait: Wait) -> (Result<Outcome>, Result<Outcome>) {
        let ends = pair(&shape).map(|mut end| {
            end.0.post_receives().unwrap();
            end
        });
        run_ends(shape, wait, 5000, ends)
    }

    fn run_ends(
        shape: Shape,
        wait: Wait,
        timeout_ms: u64,
        ends: [(FakeWire, FakePeer); 2],
    ) -> (Result<Outcome>, Result<Outcome>) {
        let [mut client, mut server] = ends;
        thread::scope(|scope| {
            let s = scope.spawn(move || run(Role::Server, &shape, &side(wait, timeout_ms), &mut server.0, &server.1));
            let c = run(Role::Client, &shape, &side(wait, timeout_ms), &mut client.0, &client.1);
            if let Err(error) = &c {
                client.1.fail_other(error.clone());
            }
            (c, s.join().unwrap())
        })
    }

    #[test]
    fn every_message_of_a_counted_test_arrives_and_no_receiver_is_bare() {
        for depth in [1, 2, 3, 5, 64] {
            for n in [1, 7, 64, 1000] {
                for wait in [Wait::Adaptive, Wait::Poll, Wait::Events] {
                    let (c, s) = both(shape(Test::RcBw, depth, Limit::Messages(n)), wait);
                    let (c, s) = (c.unwrap().stats, s.unwrap().stats);
                    assert_eq!((c.sent.msgs, s.received.msgs, s.received.bytes), (n, n, n * 100));
                    assert_eq!((c.received.msgs, s.sent.msgs), (0, 0));
                }
            }
        }
    }

    #[test]
    fn both_ways_at_once_each_end_gets_all() {
        for depth in [1, 3, 16] {
            let (c, s) = both(shape(Test::RcBiBw, depth, Limit::Messages(500)), Wait::Adaptive);
            for end in [c.unwrap().stats, s.unwrap().stats] {
                assert_eq!((end.sent.msgs, end.received.msgs), (500, 500));
            }
        }
    }

    #[test]
    fn a_timed_test_ends_in_time_and_counts_within_it() {
        for test in [Test::RcBw, Test::RcBiBw, Test::RcLat] {
            let time = Duration::from_millis(100);
            let (c, s) = both(shape(test, 16, Limit::Time(time)), Wait::Adaptive);
            let (c, s) = (c.unwrap().stats, s.unwrap().stats);
            assert!(s.received.msgs > 0, "{test:?}");
            let nanos = Duration::from_nanos(c.nanos);
            assert!(nanos >= time && nanos < time * 4, "{test:?} {nanos:?}");
        }
    }

    #[test]
    fn ping_pong_records_each_round_trip() {
        let (c, s) = both(shape(Test::RcLat, 4, Limit::Messages(300)), Wait::Events);
        let (c, s) = (c.unwrap(), s.unwrap());
        let p = c.latency.unwrap().percentiles().unwrap();
        assert_eq!((p.samples, s.stats.received.msgs, c.stats.received.msgs), (300, 300, 300));
        assert!(p.p50 > 0 && p.max >= p.p50);
        assert!(s.latency.is_none());
    }

    #[test]
    fn a_silent_peer_ends_the_test_within_the_timeout() {
        let shape = shape(Test::RcBw, 8, Limit::Messages(100));
        let ends = pair(&shape).map(|mut end| {
            end.0.post_receives().unwrap();
            end.0.mute_after = 20;
            end
        });
        let begin = std::time::Instant::now();
        let (c, s) = run_ends(shape, Wait::Adaptive, 200, ends);
        assert!(begin.elapsed() < Duration::from_secs(2));
        for error in [c.unwrap_err(), s.unwrap_err()] {
            assert!(error.to_string().contains("nothing arrived from the peer for 200 ms"), "{error}");
        }
    }

    #[test]
    fn a_peer_that_fails_ends_the_test_with_its_words() {
        let shape = shape(Test::RcBw, 8, Limit::Time(Duration::from_secs(60)));
        let [(mut wire, peer), (_, other)] = pair(&shape);
        wire.post_receives().unwrap();
        other.fail_other(Error::new(crate::error::Kind::Peer, "the server says: out of beans"));
        let error = run(Role::Server, &shape, &side(Wait::Adaptive, 5000), &mut wire, &peer).unwrap_err();
        assert!(error.to_string().contains("out of beans"));
    }

    #[test]
    fn where_messages_can_be_lost_the_test_ends_and_says_how_many_were() {
        for test in [Test::UcBw, Test::UdBiBw] {
            for n in [1, 100, 1001] {
                let shape = shape(test, 16, Limit::Messages(n));
                let ends = pair(&shape).map(|mut end| {
                    end.0.post_receives().unwrap();
                    end.0.loses = 10;
                    end
                });
                let (c, s) = run_ends(shape, Wait::Adaptive, 5000, ends);
                let (c, s) = (c.unwrap().stats, s.unwrap().stats);
                assert_eq!((c.sent.msgs, s.received.msgs + s.lost), (n, n), "{test:?}");
                assert!(s.lost >= n.div_ceil(10), "{test:?} {s:?}");
            }
        }
    }

    #[test]
    fn a_lost_ping_is_counted_and_not_waited_for() {
        let shape = shape(Test::UdLat, 4, Limit::Messages(21));
        let ends = pair(&shape).map(|mut end| {
            end.0.post_receives().unwrap();
            end
        });
        let [mut client, server] = ends;
        client.0.loses = 10;
        let (c, _) = run_ends(shape, Wait::Adaptive, 5000, [client, server]);
        let c = c.unwrap();
        assert_eq!((c.stats.lost, c.latency.unwrap().percentiles().unwrap().samples), (3, 18));
    }

    #[test]
    fn where_the_peer_takes_no_part_it_stays_to_the_end() {
        for test in [Test::RcRdmaReadBw, Test::RcRdmaReadBiBw, Test::RcFetchAddMr, Test::RcRdmaReadLat] {
            for limit in [Limit::Messages(100), Limit::Time(Duration::from_millis(50))] {
                let (c, s) = both(shape(test, 16, limit), Wait::Poll);
                let (c, s) = (c.unwrap().stats, s.unwrap().stats);
                let done = c.sent.msgs + c.received.msgs;
                assert!(done > 0 && (limit != Limit::Messages(100) || done == 100), "{test:?} {c:?}");
                assert_eq!(s.received.msgs > 0, test == Test::RcRdmaReadBiBw, "{test:?}");
            }
        }
    }

    #[test]
    fn the_warm_up_is_in_no_figure() {
        let (time, warm_up) = (Duration::from_millis(100), Duration::from_millis(150));
        for test in [Test::RcBw, Test::RcLat, Test::RcRdmaReadLat, Test::RcRdmaReadBw] {
            let mut shape = shape(test, 16, Limit::Time(time));
            shape.tuning.warm_up = warm_up;
            let begin = std::time::Instant::now();
            let (c, _) = both(shape, Wait::Poll);
            let c = c.unwrap();
            assert!(begin.elapsed() + time / 10 >= Duration::from_nanos(c.stats.nanos) + warm_up, "{test:?} {c:?}");
            let counted = c.stats.sent.msgs.max(c.stats.received.msgs);
            let samples = c.latency.map(|l| l.percentiles().map_or(0, |p| p.samples));
            assert!(samples.is_none_or(|n| n <= counted), "{test:?} {samples:?} {counted} {:?}", c.stats);
        }
    }

    #[test]
    fn a_limited_rate_is_kept_to() {
        let mut shape = shape(Test::RcBw, 16, Limit::Time(Duration::from_millis(300)));
        shape.tuning.rate_limit = Some(100 * 1000);
        let (c, s) = both(shape, Wait::Adaptive);
        let (c, s) = (c.unwrap().stats, s.unwrap().stats);
        assert!((150..=302).contains(&c.sent.msgs), "{c:?}");
        assert!(s.received.msgs >= 140, "{s:?}");
    }
}
