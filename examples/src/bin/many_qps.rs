//! Hundreds of queue pairs on one completion channel: one thread sleeps until something completes
//! anywhere.
//!
//! `many_qps -d rxe0 -c 512`. The channel says which completion queue has entries, and each
//! completion says which queue pair it is of. Queue pairs are connected two by two within this
//! process, and a message goes to and fro on every connection.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use examples::local::{Local, connect_pair};
use examples::{Result, resident_bytes, wait};
use ibverbs::{
    AccessFlags, Completion, CompletionQueue, CqId, CqOptions, Direction, QpOptions, QueueId,
    QueuePair, Rc, wr,
};

/// Sends, and receives, that a queue pair can have in flight.
const DEPTH: u32 = 2;

/// Many queue pairs, one completion channel, one thread
#[derive(Debug, Parser)]
struct Args {
    /// RDMA device; the first one if not given
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
    /// Connections: pairs of queue pairs
    #[arg(short, long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    connections: u32,
    /// Completion queues that they share
    #[arg(short = 'q', long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1 << 10))]
    completion_queues: u32,
    /// Bytes of a message
    #[arg(short, long, value_name = "BYTES", default_value_t = 64)]
    size: usize,
    /// Messages that each queue pair sends
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse()))
}

/// A queue pair, and how many messages it has yet to send.
struct End {
    qp: QueuePair<Rc>,
    left: u64,
}

fn run(args: &Args) -> Result<()> {
    let local = Local::open(args.ib_dev.as_deref(), 1, None)?;
    let pd = local.context.alloc_pd()?;
    let channel = local.context.create_comp_channel()?;
    let count = args.connections * 2;
    let per_queue = args.connections.div_ceil(args.completion_queues) * 2;
    let options = CqOptions {
        depth: per_queue * DEPTH * 2,
        channel: Some(&channel),
        ..CqOptions::default()
    };
    let mut cqs = (0..args.completion_queues)
        .map(|_| local.context.create_cq(options))
        .collect::<ibverbs::Result<Vec<_>>>()?;
    let pool = pd.pool(count as usize * 2, args.size)?;

    let (begun, before) = (Instant::now(), resident_bytes()?);
    let queues = QpOptions {
        max_send_wr: DEPTH,
        max_recv_wr: DEPTH,
        max_batch: 1,
        ..QpOptions::default()
    };
    let mut qps = Vec::new();
    for cq in cqs.iter().cycle().take(args.connections as usize) {
        qps.push((
            pd.create_qp::<Rc>(cq, cq, queues)?,
            pd.create_qp::<Rc>(cq, cq, queues)?,
        ));
    }
    let (created, memory) = (begun.elapsed(), resident_bytes()?.saturating_sub(before));
    let path = local.path(local.port.active_mtu, AccessFlags::empty());
    for (a, b) in &mut qps {
        connect_pair(&path, a, b)?;
    }
    let connected = begun.elapsed().saturating_sub(created);
    println!(
        "{count} queue pairs on {} completion queues: {} bytes of memory each",
        cqs.len(),
        memory / u64::from(count)
    );
    println!(
        "created in {created:.0?} ({:.0?} each), connected in {connected:.0?}",
        created / count
    );

    // Armed before anything is posted: what completes before gives no event.
    for cq in &mut cqs {
        cq.arm(false)?;
    }
    let mut cqs: HashMap<CqId, CompletionQueue> = cqs.into_iter().map(|cq| (cq.id(), cq)).collect();
    // One of each two has two receives posted, the other has one and begins.
    let mut ends = HashMap::new();
    for (mut a, mut b) in qps {
        a.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
        for _ in 0..DEPTH {
            b.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
        }
        a.post_send(wr::send(pool.take().ok_or("the pool is empty")?))?;
        ends.insert(
            a.id(),
            End {
                qp: a,
                left: args.iters - 1,
            },
        );
        ends.insert(
            b.id(),
            End {
                qp: b,
                left: args.iters,
            },
        );
    }
    let begun = Instant::now();
    let (total, mut received) = (u64::from(count) * args.iters, 0);
    while received < total {
        let id = channel
            .wait(Some(wait::PATIENCE))?
            .ok_or_else(|| format!("{received} of {total} messages came"))?;
        let cq = cqs
            .get_mut(&id)
            .ok_or("an event of a completion queue that is not there")?;
        cq.arm(false)?; // before polling, so that what comes meanwhile gives an event
        received += drain(cq, &mut ends)?;
    }
    let took = begun.elapsed();
    println!(
        "{total} messages in {took:.2?}: {:.0} a second",
        rate(total, took)
    );

    let begun = Instant::now();
    drop(ends);
    println!(
        "destroyed in {:.0?}, {} objects leaked",
        begun.elapsed(),
        ibverbs::leaked_objects()
    );
    Ok(())
}

/// Handles all that is in the queue; returns how many messages came.
fn drain(cq: &mut CompletionQueue, ends: &mut HashMap<QueueId, End>) -> Result<u64> {
    let mut received = 0;
    loop {
        let completions = cq.poll()?;
        if completions.is_empty() {
            return Ok(received);
        }
        for completion in completions {
            received += u64::from(advance(completion, ends)?);
        }
    }
}

/// Sends back what was received, and receives again into what was sent. Returns whether a message
/// came.
fn advance(completion: Completion<'_>, ends: &mut HashMap<QueueId, End>) -> Result<bool> {
    let End { qp, left } = ends
        .get_mut(&completion.queue())
        .ok_or("a completion of no queue pair")?;
    let retired = qp.retire(completion)?;
    retired.ok()?;
    let came = retired.direction() == Direction::Recv;
    let buf = retired.into_buf().ok_or("a request without a buffer")?;
    if !came {
        qp.post_recv(wr::recv(buf))?;
    } else if *left > 0 {
        *left -= 1;
        qp.post_send(wr::send(buf))?;
    }
    Ok(came)
}

#[allow(clippy::cast_precision_loss, reason = "for people to read")]
fn rate(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
