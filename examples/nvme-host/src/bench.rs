//! IOPS and latency of random 4 KiB reads and writes.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use crate::Result;
use crate::controller::{Controller, Namespace};
use crate::queue::Queue;
use crate::session::Direction;

/// Length of a request in bytes.
const IO_LEN: usize = 4096;

/// Measures a controller with all of its I/O queues full. Returns the requests per second, and the
/// mean and the 99th percentile of their latency.
///
/// # Errors
/// Fails if a command fails or the connection is lost.
pub fn run(
    controller: &mut Controller,
    direction: Direction,
    duration: Duration,
) -> Result<(f64, Duration, Duration)> {
    let start = Instant::now();
    let namespace = controller.namespace;
    let latencies = controller
        .with_io_queues(|queue| latencies(queue, namespace, direction, start + duration))?;
    let mut latencies = latencies.concat();
    latencies.sort_unstable();
    let p99 = latencies.get(latencies.len() * 99 / 100).copied();
    let count = u32::try_from(latencies.len()).unwrap_or(u32::MAX);
    let iops = f64::from(count) / start.elapsed().as_secs_f64();
    let mean = latencies.iter().sum::<Duration>() / count.max(1);
    Ok((iops, mean, p99.unwrap_or_default()))
}

/// Keeps one queue full until `end`.
fn latencies(
    queue: &mut Queue,
    namespace: Namespace,
    direction: Direction,
    end: Instant,
) -> Result<Vec<Duration>> {
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ u64::from(queue.qid());
    let started = RefCell::new(vec![Instant::now(); queue.depth()]);
    let mut latencies = Vec::new();
    queue.run(
        |slot, _| {
            let now = Instant::now();
            started.borrow_mut()[slot] = now;
            random = xorshift(random);
            let position = random % (namespace.size() / IO_LEN as u64) * IO_LEN as u64;
            Ok((now < end).then(|| namespace.command(direction, position, IO_LEN)))
        },
        |slot, _, _| {
            latencies.push(started.borrow()[slot].elapsed());
            Ok(())
        },
    )?;
    Ok(latencies)
}

/// Returns the next number of a generator (xorshift64). `state` is not 0.
pub(crate) fn xorshift(mut state: u64) -> u64 {
    state ^= state << 13;
    state ^= state >> 7;
    state ^ state << 17
}
