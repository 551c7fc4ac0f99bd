//! Several threads at each end. Each one runs the loop over its own data path; their counts are
//! summed.

use std::thread::scope;

use base::cpus::CpuList;
use base::error::{Error, Kind, Result};
use base::threads::spawn_scoped_with_stack;

use super::{DataPath, Measurement, Peer, Role, pin, run};
use crate::spec::footprint::ENGINE_STACK;
use crate::spec::{Shape, Side};
use crate::stats::{SideStats, ThreadStats};

/// Runs the test of `shape` with one thread for each data path and its [`Peer`]. Thread number n of
/// one end communicates with number n of the other.
///
/// # Errors
/// Returns an error of `run::run`. If several threads fail, it is the one that caused the others.
pub fn run<W: DataPath + Send, P: Peer + Send>(
    role: Role,
    shape: &Shape,
    side: &Side,
    ends: &mut [(W, P)],
) -> Result<Measurement> {
    let sides = sides(role, side, ends.len())?;
    if let ([(data_path, peer)], [side]) = (&mut *ends, sides.as_slice()) {
        return run::run(role, shape, side, data_path, peer);
    }
    let bodies = (0..).zip(ends.iter_mut().zip(&sides));
    let bodies = bodies.map(|(number, ((data_path, peer), side))| {
        let shape = shape.share(number);
        move || {
            run::run(role, &shape, side, data_path, peer).inspect_err(|error| peer.give_up(error))
        }
    });
    let measurements = run_all(bodies.collect());
    sum(measurements, sides)
}

/// Returns the settings of each of `count` threads, with the processor that it runs on. A single
/// thread may run on all processors of the list, unless other sessions of the test use the list.
pub fn sides(role: Role, side: &Side, count: usize) -> Result<Vec<Side>> {
    if count == 1 && (side.cpus.is_none() || side.cpu_offset.is_none()) {
        return Ok(vec![side.clone()]);
    }
    let from_last = role == Role::Server;
    let first = side.cpu_offset.unwrap_or(0) as usize;
    let sides = (first..first + count).map(|index| {
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
        let started: Vec<_> = (0..)
            .zip(bodies)
            .map(|(n, body): (u32, F)| {
                spawn_scoped_with_stack(scope, &format!("engine {n}"), ENGINE_STACK, body)
            })
            .collect();
        let results = started.into_iter().map(|thread| match thread {
            Ok(thread) => thread
                .join()
                .unwrap_or_else(|_| Err(Error::test("a thread of the test panicked"))),
            Err(error) => Err(error),
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
    let mut parts = Vec::new();
    let mut threads = Vec::new();
    let mut failed: Option<Error> = None;
    for (measurement, side) in measurements.into_iter().zip(sides) {
        match measurement {
            Ok(Measurement { stats, .. }) => {
                threads.push(thread_stats(&stats, &side));
                parts.push(stats);
            }
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
    match failed {
        Some(error) => Err(error),
        None => Ok(Measurement {
            stats: SideStats {
                threads,
                ..SideStats::sum(&parts)
            },
            latency: None,
        }),
    }
}

/// Returns the measurements of a thread with these settings.
fn thread_stats(stats: &SideStats, side: &Side) -> ThreadStats {
    ThreadStats {
        on: side.cpus.as_ref().map(CpuList::to_string),
        sent: stats.sent,
        received: stats.received,
        nanos: stats.nanos,
        cpu: stats.cpu.thread.unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::modes::Wait;
    use std::time::Duration;

    #[test]
    fn sessions_of_several_devices_share_the_processors() {
        let mut side = Side::new(Wait::Adaptive, Duration::from_secs(5));
        side.cpus = Some("2-5".parse().unwrap());
        let processors = |side: &Side, role, count| -> Vec<String> {
            let sides = sides(role, side, count).unwrap().into_iter();
            sides.map(|side| side.cpus.unwrap().to_string()).collect()
        };
        assert_eq!(processors(&side, Role::Client, 1), ["2-5"]);
        side.cpu_offset = Some(1);
        assert_eq!(processors(&side, Role::Client, 1), ["3"]);
        assert_eq!(processors(&side, Role::Server, 1), ["4"]);
        side.cpu_offset = Some(2);
        assert_eq!(processors(&side, Role::Client, 2), ["4", "5"]);
        side.cpus = None;
        assert_eq!(sides(Role::Client, &side, 1).unwrap()[0].cpus, None);
    }
}
