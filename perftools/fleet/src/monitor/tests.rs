//! Tests of the tracker.

use std::time::Duration;

use super::tracker::{BUCKETS, MonitorSettings, PathState, Totals, Tracker, bucket};

const MS: u64 = 1_000_000;

fn settings() -> MonitorSettings {
    MonitorSettings {
        interval: Duration::from_secs(1),
        timeout: Duration::from_millis(500),
        late_limit: Duration::from_secs(3),
        lost_after: 3,
        flows: 2,
        max_rate: 1000,
    }
}

fn with_paths(count: u32) -> Tracker {
    let mut tracker = Tracker::new(settings());
    for _ in 0..count {
        tracker.add_path();
    }
    tracker
}

fn states(tracker: &mut Tracker) -> Vec<(u32, PathState, u8)> {
    let changes = tracker.take_changes();
    changes
        .iter()
        .map(|c| (c.path, c.to, c.lost_flows))
        .collect()
}

#[test]
fn six_timestamps_separate_hosts_and_network() {
    let mut tracker = with_paths(1);
    let probe = tracker.next_probe(1000).unwrap();
    assert_eq!((probe.id, probe.path, probe.flow), (0, 0, 0));
    // The clock of the device has another origin.
    tracker.posted(0, 9_000_100);
    tracker.answered(0, 9_000_900, 2000);
    tracker.timed(0, 300);
    let path = tracker.paths()[0];
    // Total 1000. Between sending and arrival 800, and the peer needs 300 of them.
    assert_eq!(
        path.totals,
        Totals {
            sent: 1,
            answered: 1,
            timed: 1,
            network: 500,
            host: 200,
            peer: 300,
            ..Totals::default()
        }
    );
    assert_eq!((path.latest, path.state), (500, PathState::Up));
    tracker.timed(0, 300);
    tracker.answered(0, 9_000_900, 2000);
    assert_eq!(tracker.paths()[0].totals, path.totals);
    assert_eq!(tracker.histogram().0[0], 1);
}

#[test]
fn clocks_that_jump_and_false_times_do_not_exceed_the_total() {
    let mut tracker = with_paths(1);
    // The clock of this host jumps forward and back, that of the peer forward. A hostile peer
    // reports any time.
    let times = [
        (1_000, 9_000_000, 100),
        (9_000_000, 1_000, 100),
        (100, 900, 3_600_000_000_000),
        (100, 900, u64::MAX),
        (100, 900, u64::MAX),
    ];
    for (id, (posted, received, peer)) in (0..).zip(times) {
        let begin = id * 2000 * MS;
        assert_eq!(tracker.next_probe(begin).map(|probe| probe.id), Some(id));
        tracker.posted(id, posted);
        tracker.answered(id, received, begin + 1000);
        tracker.timed(id, peer);
    }
    let totals = tracker.paths()[0].totals;
    assert_eq!(
        (totals.network, totals.host, totals.peer),
        (2 * 900, 3 * 200, 2 * 100 + 3 * 800)
    );
}

#[test]
fn late_answers_are_neither_lost_nor_answered() {
    let mut tracker = with_paths(1);
    let counts = |tracker: &Tracker| {
        let Totals {
            sent,
            answered,
            late,
            lost,
            ..
        } = tracker.paths()[0].totals;
        (sent, answered, late, lost, tracker.in_flight())
    };
    for second in 0..4 {
        tracker.next_probe(second * 1000 * MS).unwrap();
        tracker.expire(second * 1000 * MS + 600 * MS);
    }
    assert_eq!(counts(&tracker), (4, 0, 0, 1, 3));
    assert_eq!(states(&mut tracker), [(0, PathState::Lost, 0)]);
    // The first one is lost, the second one late, also if its answer arrives twice.
    tracker.expire(3700 * MS);
    tracker.answered(0, 1, 3700 * MS);
    tracker.answered(1, 1, 3700 * MS);
    tracker.answered(1, 1, 3700 * MS);
    assert_eq!(counts(&tracker), (4, 0, 1, 1, 2));
    assert_eq!(states(&mut tracker), [(0, PathState::Stalled, 0)]);
    tracker.expire(100_000 * MS);
    assert_eq!(counts(&tracker), (4, 0, 1, 3, 0));
    // An answer that is handled late is late, even before the timeout was noticed.
    let probe = tracker.next_probe(100_000 * MS).unwrap();
    tracker.answered(probe.id, 1, 100_501 * MS);
    assert_eq!(counts(&tracker), (5, 0, 2, 3, 0));
    let probe = tracker.next_probe(101_000 * MS).unwrap();
    tracker.answered(probe.id, 1, 101_001 * MS);
    assert_eq!(states(&mut tracker), [(0, PathState::Up, 0)]);
}

#[test]
fn a_lost_flow_label_is_named() {
    let mut tracker = with_paths(1);
    let mut changes = Vec::new();
    for second in 0..12 {
        let now = second * 1000 * MS;
        tracker.expire(now);
        let probe = tracker.next_probe(now).unwrap();
        if probe.flow == 0 || second > 8 {
            tracker.answered(probe.id, 0, now + MS);
        }
        changes.extend(states(&mut tracker));
    }
    assert_eq!(
        changes,
        [
            (0, PathState::Up, 0),
            (0, PathState::Partial, 0b10),
            (0, PathState::Up, 0)
        ]
    );
}

#[test]
fn older_probes_do_not_undo_a_recovery() {
    let mut tracker = Tracker::new(MonitorSettings {
        interval: Duration::from_millis(50),
        timeout: Duration::from_secs(2),
        ..settings()
    });
    tracker.add_path();
    let mut changes = Vec::new();
    for step in 0..200 {
        let now = step * 50 * MS;
        tracker.expire(now);
        let probe = tracker.next_probe(now).unwrap();
        // The path is cut for 3 s, in which 60 probes are sent. The last 40 end after it.
        if !(60..120).contains(&step) {
            tracker.answered(probe.id, 0, now + MS);
        }
        changes.extend(states(&mut tracker));
    }
    let up = (0, PathState::Up, 0);
    assert_eq!(changes[0], up);
    assert_eq!(changes.last(), Some(&up));
    assert_eq!(changes.len(), 3, "{changes:?}");
}

#[test]
fn probes_are_spread_over_the_interval() {
    let mut tracker = with_paths(4);
    tracker.enable(2, false);
    let mut sent = Vec::new();
    for now in (0..1000).map(|ms| ms * MS) {
        sent.extend(tracker.next_probe(now).map(|p| (now / MS, p.path)));
    }
    assert_eq!(sent, [(0, 0), (334, 1), (667, 3)]);
    assert_eq!(tracker.next_deadline(), Some(500 * MS + 1));
    // A pause of an hour is followed by the probes of one interval at most.
    let late = (0..100).filter_map(|_| tracker.next_probe(3_600_000 * MS));
    assert!(late.count() <= 4);
    // The rate has a limit.
    let mut tracker = with_paths(5000);
    let sent = (0..1000).filter_map(|ms| tracker.next_probe(ms * MS));
    assert!(sent.count() <= 1000);
}

proptest::proptest! {
    #[test]
    fn each_probe_ends_once(steps: Vec<(u8, u64, u64)>) {
        let mut tracker = with_paths(3);
        let mut now = 0;
        for (step, id, wait) in steps {
            now += wait % (900 * MS);
            match step % 5 {
                0 | 1 => drop(tracker.next_probe(now)),
                2 => tracker.answered(id % 40, wait, now),
                3 => tracker.timed(id % 40, wait),
                _ => tracker.expire(now),
            }
            let sum = |count: fn(&Totals) -> u64| -> u64 {
                tracker.paths().iter().map(|p| count(&p.totals)).sum()
            };
            assert_eq!(
                sum(|t| t.sent),
                sum(|t| t.answered + t.late + t.lost) + tracker.in_flight() as u64
            );
        }
    }
}

#[test]
fn buckets_are_powers_of_two() {
    for (nanos, expected) in [(0, 0), (1_000, 0), (1_001, 1), (2_000, 1), (2_001, 2)] {
        assert_eq!(bucket(nanos), expected, "{nanos}");
    }
    assert_eq!(bucket(u64::MAX / 2), BUCKETS - 1);
}
