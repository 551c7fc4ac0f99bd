//! Several threads at each end: each runs the loop over a wire of its own, and what they counted is
//! summed.

use std::thread::{Builder, scope};

use super::{Measurement, Peer, Role, Wire, pin, run};
use crate::common::error::{Error, Kind, Result};
use crate::rperf::spec::{Shape, Side};
use crate::rperf::stats::{SideStats, ThreadStats};

/// Runs what `shape` plans, one thread for each wire; each has a `peer` that speaks for it alone.
/// Thread number n here talks with number n there.
///
/// # Errors
/// As [`run::run`]; of several, the one that is not the consequence of another.
pub fn run<W: Wire + Send, P: Peer + Send>(
    role: Role,
    shape: &Shape,
    side: &Side,
    ends: &mut [(W, P)],
) -> Result<Measurement> {
    if let [(wire, peer)] = ends {
        return run::run(role, shape, side, wire, peer);
    }
    let other = role == Role::Server;
    let sides = (0..ends.len()).map(|index| {
        let cpus = pin::own(side.cpus.as_ref(), index, other)?;
        Ok(Side {
            cpus,
            ..side.clone()
        })
    });
    let sides = sides.collect::<Result<Vec<_>>>()?;
    let measurements: Vec<Result<Measurement>> = scope(|scope| {
        let started: Vec<_> = (0..)
            .zip(ends.iter_mut().zip(&sides))
            .map(|(number, ((wire, peer), side))| {
                let shape = shape.share(number);
                let body = move || {
                    run::run(role, &shape, side, wire, peer)
                        .inspect_err(|error| peer.give_up(error))
                };
                Builder::new()
                    .name(format!("engine {number}"))
                    .spawn_scoped(scope, body)
            })
            .collect();
        let ended = started.into_iter().map(|thread| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Error::test("a thread of the test ended in a panic"))),
            Err(error) => Err(Error::system("cannot start a thread for the test", &error)),
        });
        ended.collect()
    });
    let mut stats = SideStats::default();
    let mut failed: Option<Error> = None;
    for (measurement, side) in measurements.into_iter().zip(sides) {
        match measurement {
            Ok(measurement) => add(&mut stats, &measurement.stats, side),
            // That the peer gave up, or is gone, is what the failure of another thread comes to.
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

/// Adds what a thread counted. Its process and its host are those of all threads: what the one saw
/// that ran longest. Who waited for a processor, or stalled, spoils the figures alone: the longest
/// of that.
fn add(sum: &mut SideStats, one: &SideStats, side: Side) {
    sum.sent = sum.sent + one.sent;
    sum.received = sum.received + one.received;
    sum.lost += one.lost;
    sum.verified += one.verified;
    sum.max_cqe = sum.max_cqe.max(one.max_cqe);
    sum.stalled = sum.stalled.max(one.stalled);
    let thread = sum.cpu.thread + one.cpu.thread;
    let waited = sum.cpu.waited.max(one.cpu.waited);
    if one.nanos > sum.nanos {
        (sum.nanos, sum.cpu) = (one.nanos, one.cpu);
    }
    (sum.cpu.thread, sum.cpu.waited) = (thread, waited);
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
        cpu: one.cpu.thread,
    });
}
