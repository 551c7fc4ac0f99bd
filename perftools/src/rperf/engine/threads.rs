//! Several threads at each end. Each one runs the loop over its own wire; their counts are summed.

use std::thread::{Builder, scope};

use super::{Measurement, Peer, Role, Wire, pin, run};
use crate::common::error::{Error, Kind, Result};
use crate::rperf::spec::footprint::ENGINE_STACK;
use crate::rperf::spec::{Shape, Side};
use crate::rperf::stats::{SideStats, ThreadStats};

/// Runs the test of `shape` with one thread for each wire and its [`Peer`]. Thread number n of one
/// end communicates with number n of the other.
///
/// # Errors
/// Returns an error of [`run::run`]. If several threads fail, it is the one that caused the others.
pub fn run<W: Wire + Send, P: Peer + Send>(
    role: Role,
    shape: &Shape,
    side: &Side,
    ends: &mut [(W, P)],
) -> Result<Measurement> {
    if let [(wire, peer)] = ends {
        return run::run(role, shape, side, wire, peer);
    }
    let sides = sides(role, side, ends.len())?;
    let bodies = (0..).zip(ends.iter_mut().zip(&sides));
    let bodies = bodies.map(|(number, ((wire, peer), side))| {
        let shape = shape.share(number);
        move || run::run(role, &shape, side, wire, peer).inspect_err(|error| peer.give_up(error))
    });
    let measurements = run_all(bodies.collect());
    sum(measurements, sides)
}

/// Returns the settings of each of `count` threads, with the processor that it runs on.
///
/// # Errors
/// Returns an error if a processor is not available.
pub fn sides(role: Role, side: &Side, count: usize) -> Result<Vec<Side>> {
    let from_last = role == Role::Server;
    let sides = (0..count).map(|index| {
        let cpus = pin::nth_processor(side.cpus.as_ref(), index, from_last)?;
        Ok(Side {
            cpus,
            ..side.clone()
        })
    });
    sides.collect()
}

/// Runs each body in a thread of its own, and returns the results in the same order.
pub fn run_all<F>(bodies: Vec<F>) -> Vec<Result<Measurement>>
where
    F: FnOnce() -> Result<Measurement> + Send,
{
    scope(|scope| {
        let spawn = |(number, body)| {
            Builder::new()
                .name(format!("engine {number}"))
                .stack_size(ENGINE_STACK)
                .spawn_scoped(scope, body)
        };
        let started: Vec<_> = (0..)
            .zip(bodies)
            .map(|(n, body): (u32, F)| spawn((n, body)))
            .collect();
        let results = started.into_iter().map(|thread| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Error::test("a thread of the test panicked"))),
            Err(error) => Err(Error::system("cannot start a thread for the test", &error)),
        });
        results.collect()
    })
}

/// Sums the measurements of threads with these settings.
///
/// # Errors
/// Returns the error of a thread that failed, if any. If several failed, it is the one that caused
/// the others.
pub fn sum(measurements: Vec<Result<Measurement>>, sides: Vec<Side>) -> Result<Measurement> {
    let mut stats = SideStats::default();
    let mut failed: Option<Error> = None;
    for (measurement, side) in measurements.into_iter().zip(sides) {
        match measurement {
            Ok(measurement) => add(&mut stats, &measurement.stats, side),
            // If one thread fails, the peer ends the test, and the other threads fail because of
            // that.
            Err(error)
                if failed
                    .as_ref()
                    .is_none_or(|e| matches!(e.kind(), Kind::Gone | Kind::Peer)) =>
            {
                failed = Some(error);
            }
            Err(_) => {}
        }
    }
    failed.map_or(
        Ok(Measurement {
            stats,
            latency: None,
        }),
        Err,
    )
}

/// Adds the counts of a thread. The processor times of the process and of the host are taken from
/// the thread that ran longest. The times of waiting for a processor and of stalls are the maxima,
/// because one thread can spoil the result.
fn add(sum: &mut SideStats, one: &SideStats, side: Side) {
    sum.sent = sum.sent + one.sent;
    sum.received = sum.received + one.received;
    sum.lost += one.lost;
    sum.duplicates += one.duplicates;
    sum.verified += one.verified;
    sum.max_cqe = sum.max_cqe.max(one.max_cqe);
    sum.stalled = sum.stalled.max(one.stalled);
    let thread = match sum.threads.as_slice() {
        [] => one.cpu.thread,
        _ => sum.cpu.thread.zip(one.cpu.thread).map(|(a, b)| a + b),
    };
    let waited = match (sum.cpu.waited, one.cpu.waited) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    if one.nanos > sum.nanos {
        (sum.nanos, sum.cpu) = (one.nanos, one.cpu);
    }
    (sum.cpu.thread, sum.cpu.waited) = (thread, waited);
    sum.retransmitted = match sum.threads.as_slice() {
        [] => one.retransmitted,
        // If the count of one thread is unknown, so is the sum.
        _ => sum.retransmitted.zip(one.retransmitted).map(|(a, b)| a + b),
    };
    sum.jitter = match (sum.jitter, one.jitter) {
        (Some(a), Some(b)) => Some(a.max(b)),
        (a, b) => a.or(b),
    };
    let on = side.cpus.map(|cpus| cpus.to_string());
    let SideStats {
        sent,
        received,
        nanos,
        ..
    } = *one;
    sum.threads.push(ThreadStats {
        on,
        sent,
        received,
        nanos,
        cpu: one.cpu.thread.unwrap_or_default(),
    });
}
