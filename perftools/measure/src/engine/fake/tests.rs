use super::*;
use crate::engine::run::run;
use crate::engine::{Measurement, Role};
use crate::spec::Side;
use crate::spec::modes::Wait;
use std::cell::Cell;
use std::thread;

use test_support::text::assert_contains;

fn side(wait: Wait, timeout_ms: u64) -> Side {
    Side::new(wait, Duration::from_millis(timeout_ms))
}

fn run_pair(shape: Shape, wait: Wait) -> (Result<Measurement>, Result<Measurement>) {
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
    ends: [(FakeDataPath, FakePeer); 2],
) -> (Result<Measurement>, Result<Measurement>) {
    let [mut client, mut server] = ends;
    thread::scope(|scope| {
        let s = scope.spawn(move || {
            run(
                Role::Server,
                &shape,
                &side(wait, timeout_ms),
                &mut server.0,
                &server.1,
            )
        });
        let c = run(
            Role::Client,
            &shape,
            &side(wait, timeout_ms),
            &mut client.0,
            &client.1,
        );
        if let Err(error) = &c {
            client.1.fail_other(error.clone());
        }
        (c, s.join().unwrap())
    })
}

#[test]
fn every_message_arrives_and_finds_a_receive() {
    for depth in [1, 2, 3, 5, 64] {
        for n in [1, 7, 64, 300] {
            for wait in [Wait::Adaptive, Wait::Poll, Wait::Events] {
                let (c, s) = run_pair(shape(Test::RcBw, depth, Limit::Messages(n)), wait);
                let (c, s) = (c.unwrap().stats, s.unwrap().stats);
                assert_eq!(
                    (c.sent.msgs, s.received.msgs, s.received.bytes),
                    (n, n, n * 100)
                );
                assert_eq!((c.received.msgs, s.sent.msgs), (0, 0));
            }
        }
    }
}

#[test]
fn each_end_of_a_bidirectional_test_gets_all_messages() {
    for depth in [1, 3, 16] {
        let (c, s) = run_pair(
            shape(Test::RcBiBw, depth, Limit::Messages(500)),
            Wait::Adaptive,
        );
        for end in [c.unwrap().stats, s.unwrap().stats] {
            assert_eq!((end.sent.msgs, end.received.msgs), (500, 500));
        }
    }
}

#[test]
fn a_timed_test_counts_within_its_time() {
    for test in [Test::RcBw, Test::RcBiBw, Test::RcLat] {
        let time = Duration::from_millis(100);
        let (c, s) = run_pair(shape(test, 16, Limit::Time(time)), Wait::Adaptive);
        let (c, s) = (c.unwrap().stats, s.unwrap().stats);
        assert!(s.received.msgs > 0, "{test:?}");
        let nanos = Duration::from_nanos(c.nanos);
        assert!(nanos >= time && nanos < time * 4, "{test:?} {nanos:?}");
    }
}

#[test]
fn ping_pong_records_each_round_trip() {
    let (c, s) = run_pair(shape(Test::RcLat, 4, Limit::Messages(300)), Wait::Events);
    let (c, s) = (c.unwrap(), s.unwrap());
    let p = c.latency.unwrap().percentiles().unwrap();
    assert_eq!(
        (p.samples, s.stats.received.msgs, c.stats.received.msgs),
        (300, 300, 300)
    );
    assert!(p.p50 > 0 && p.max >= p.p50);
    assert!(s.latency.is_none());
}

/// The control connection to a server that reports one reply less than it sent.
struct FewerReplies(FakePeer);

impl Peer for FewerReplies {
    fn finish(&self, sent: u64) -> Result<()> {
        self.0.finish(sent)
    }

    fn finished(&self) -> Option<u64> {
        self.0.finished().map(|sent| sent - 1)
    }

    fn failure(&self) -> Option<Error> {
        self.0.failure()
    }

    fn explain(&self, error: Error) -> Error {
        error
    }
}

#[test]
fn more_replies_than_the_server_sent_are_an_error() {
    let shape = shape(Test::UdLat, 4, Limit::Messages(30));
    let [mut client, mut server] = pair(&shape);
    let side = side(Wait::Adaptive, 5000);
    thread::scope(|scope| {
        server.0.post_receives().unwrap();
        client.0.post_receives().unwrap();
        let s = scope.spawn(|| run(Role::Server, &shape, &side, &mut server.0, &server.1));
        let peer = FewerReplies(client.1);
        let error = run(Role::Client, &shape, &side, &mut client.0, &peer).unwrap_err();
        let text = error.to_string();
        assert_contains(&text, &["30 messages arrived, but the peer sent 29"]);
        s.join().unwrap().unwrap();
    });
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
        assert_contains(&error, &["nothing arrived from the peer for 200 ms"]);
    }
}

#[test]
fn the_error_of_the_peer_ends_the_test() {
    let shape = shape(Test::RcBw, 8, Limit::Time(Duration::from_secs(60)));
    let [(mut data_path, peer), (_, other)] = pair(&shape);
    data_path.post_receives().unwrap();
    other.fail_other(Error::new(
        base::error::Kind::Peer,
        "the server says: out of beans",
    ));
    let error = run(
        Role::Server,
        &shape,
        &side(Wait::Adaptive, 5000),
        &mut data_path,
        &peer,
    )
    .unwrap_err();
    assert!(error.to_string().contains("out of beans"));
}

#[test]
fn a_lossy_test_ends_and_counts_lost_messages() {
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
fn sends_that_complete_late_are_counted() {
    let count = 16;
    let shape = shape(Test::UcBiBw, 16, Limit::Messages(count));
    let mut ends = pair(&shape).map(|mut end| {
        end.0.post_receives().unwrap();
        end
    });
    // The client misses messages of the server before its own sends complete.
    ends[0].0.completes_after = Some(Instant::now() + Duration::from_millis(300));
    ends[1].0.mute_after = 5;
    let (c, s) = run_ends(shape, Wait::Adaptive, 5000, ends);
    let (c, s) = (c.unwrap().stats, s.unwrap().stats);
    assert_eq!((c.sent.msgs, s.sent.msgs), (count, count));
    assert_eq!((c.received.msgs, c.lost), (5, count - 5));
    assert_eq!((s.received.msgs, s.lost), (count, 0));
}

#[test]
fn a_lost_ping_is_counted() {
    let shape = shape(Test::UdLat, 4, Limit::Messages(21));
    let ends = pair(&shape).map(|mut end| {
        end.0.post_receives().unwrap();
        end
    });
    let [mut client, server] = ends;
    client.0.loses = 10;
    let (c, _) = run_ends(shape, Wait::Adaptive, 5000, [client, server]);
    let c = c.unwrap();
    assert_eq!(
        (
            c.stats.lost,
            c.latency.unwrap().percentiles().unwrap().samples
        ),
        (3, 18)
    );
}

#[test]
fn a_late_reply_is_received_and_not_lost() {
    let shape = shape(Test::UdLat, 4, Limit::Messages(21));
    let ends = pair(&shape).map(|mut end| {
        end.0.post_receives().unwrap();
        end
    });
    let [client, mut server] = ends;
    server.0.late = Some(10);
    let (c, _) = run_ends(shape, Wait::Adaptive, 5000, [client, server]);
    let c = c.unwrap();
    let samples = c.latency.unwrap().percentiles().unwrap().samples;
    let counts = (c.stats.sent.msgs, c.stats.received.msgs, c.stats.lost);
    assert_eq!((counts, samples), ((21, 21, 0), 20));
}

#[test]
fn a_passive_end_stays_until_the_test_is_over() {
    for test in [
        Test::RcRdmaReadBw,
        Test::RcRdmaReadBiBw,
        Test::RcFetchAddMr,
        Test::RcRdmaReadLat,
    ] {
        for limit in [Limit::Messages(100), Limit::Time(Duration::from_millis(50))] {
            let (c, s) = run_pair(shape(test, 16, limit), Wait::Poll);
            let (c, s) = (c.unwrap().stats, s.unwrap().stats);
            let done = c.sent.msgs + c.received.msgs;
            assert!(
                done > 0 && (limit != Limit::Messages(100) || done == 100),
                "{test:?} {c:?}"
            );
            assert_eq!(
                s.received.msgs > 0,
                test == Test::RcRdmaReadBiBw,
                "{test:?}"
            );
        }
    }
}

#[test]
fn the_warm_up_is_not_counted() {
    let (time, warm_up) = (Duration::from_millis(100), Duration::from_millis(150));
    for test in [
        Test::RcBw,
        Test::RcLat,
        Test::RcRdmaReadLat,
        Test::RcRdmaReadBw,
    ] {
        let mut shape = shape(test, 16, Limit::Time(time));
        shape.tuning.warm_up = warm_up;
        let begin = std::time::Instant::now();
        let (c, _) = run_pair(shape, Wait::Poll);
        let c = c.unwrap();
        assert!(
            begin.elapsed() + time / 10 >= Duration::from_nanos(c.stats.nanos) + warm_up,
            "{test:?} {c:?}"
        );
        let counted = c.stats.sent.msgs.max(c.stats.received.msgs);
        let samples = c.latency.map(|l| l.percentiles().map_or(0, |p| p.samples));
        assert!(
            samples.is_none_or(|n| n <= counted),
            "{test:?} {samples:?} {counted} {:?}",
            c.stats
        );
    }
}

#[test]
fn verified_payload_is_not_overwritten_before_it_is_sent() {
    let mut shape = shape(Test::UcLat, 4, Limit::Messages(2));
    (shape.verify, shape.signal_every) = (true, 1);
    let [mut client, mut server] = pair(&shape);
    for end in [&mut client, &mut server] {
        end.0.post_receives().unwrap();
    }
    let begin = Instant::now();
    let completes_after = begin + Duration::from_millis(700);
    client.0.completes_after = Some(completes_after);
    client.0.loses = 1;
    let (client, _) = run_ends(shape, Wait::Adaptive, 5000, [client, server]);
    // The client does not wait as long for two replies.
    assert_eq!(client.unwrap().stats.lost, 2);
    assert!(Instant::now() >= completes_after, "{:?}", begin.elapsed());
}

/// A peer whose first check takes longer than a whole test, as on a busy host.
struct SlowPeer {
    peer: FakePeer,
    is_slow: Cell<bool>,
}

impl Peer for SlowPeer {
    fn finish(&self, sent: u64) -> Result<()> {
        self.peer.finish(sent)
    }

    fn finished(&self) -> Option<u64> {
        self.peer.finished()
    }

    fn failure(&self) -> Option<Error> {
        self.peer.failure()
    }

    fn explain(&self, error: Error) -> Error {
        error
    }

    fn is_interrupted(&self) -> bool {
        if self.is_slow.take() {
            thread::sleep(Duration::from_millis(100));
        }
        false
    }
}

#[test]
fn a_warm_up_that_ends_late_is_followed_by_a_measurement() {
    for test in [Test::RcLat, Test::RcBw, Test::RcRdmaReadLat] {
        let time = Duration::from_millis(30);
        let mut shape = shape(test, 16, Limit::Time(time));
        shape.tuning.warm_up = Duration::from_millis(20);
        let [(mut client, client_peer), (mut server, server_peer)] = pair(&shape);
        client.post_receives().unwrap();
        server.post_receives().unwrap();
        let side = side(Wait::Adaptive, 5000);
        let peer = SlowPeer {
            peer: client_peer,
            is_slow: Cell::new(true),
        };
        let measured = thread::scope(|scope| {
            scope.spawn(|| run(Role::Server, &shape, &side, &mut server, &server_peer));
            run(Role::Client, &shape, &side, &mut client, &peer)
        });
        let nanos = Duration::from_nanos(measured.unwrap().stats.nanos);
        assert!(nanos >= time, "{test:?} {nanos:?}");
    }
}

#[test]
fn the_rate_limit_is_kept() {
    let mut shape = shape(Test::RcBw, 16, Limit::Time(Duration::from_millis(300)));
    shape.tuning.rate_limit = Some(100 * 1000);
    let (c, s) = run_pair(shape, Wait::Adaptive);
    let (c, s) = (c.unwrap().stats, s.unwrap().stats);
    assert!((150..=302).contains(&c.sent.msgs), "{c:?}");
    assert!(s.received.msgs >= 140, "{s:?}");
}
