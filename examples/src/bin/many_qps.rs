//! Hundreds of queue pairs that share one completion channel and one thread.
//!
//! `many_qps -d rxe0 -c 512`. The thread sleeps on the channel. An event names the completion queue
//! that has entries, and each completion names its queue pair. The queue pairs are connected in
//! pairs within this process, and each pair sends one message back and forth.

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

/// Maximum number of sends, and of receives, in flight per queue pair.
const DEPTH: u32 = 2;

/// Ping-pong over many queue pairs with one completion channel and one thread
#[derive(Debug, Parser)]
struct Args {
    /// RDMA device [default: the first one]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
    /// Number of connections; each has two queue pairs
    #[arg(short, long, value_name = "COUNT", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    connections: u32,
    /// Number of completion queues, shared by all queue pairs
    #[arg(short = 'q', long, value_name = "COUNT", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1 << 10))]
    completion_queues: u32,
    /// Message size in bytes
    #[arg(short, long, value_name = "BYTES", default_value_t = 64)]
    size: usize,
    /// Messages to send per queue pair
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..))]
    iters: u64,
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse()))
}

/// A queue pair and the number of messages that it still has to send.
struct PingPong {
    qp: QueuePair<Rc>,
    remaining: u64,
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

    let (start, resident_before) = (Instant::now(), resident_bytes()?);
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
    let created = start.elapsed();
    let memory = resident_bytes()?.saturating_sub(resident_before);
    let path = local.path(local.port.active_mtu, AccessFlags::empty());
    for (a, b) in &mut qps {
        connect_pair(&path, a, b)?;
    }
    let connected = start.elapsed().saturating_sub(created);
    println!(
        "{count} queue pairs on {} completion queues: {} bytes of memory each",
        cqs.len(),
        memory / u64::from(count)
    );
    println!(
        "created in {created:.0?} ({:.0?} each), connected in {connected:.0?}",
        created / count
    );

    // A completion queue must be armed before the first post: an earlier completion causes no
    // event.
    for cq in &mut cqs {
        cq.arm(false)?;
    }
    let mut cqs: HashMap<CqId, CompletionQueue> = cqs.into_iter().map(|cq| (cq.id(), cq)).collect();
    // The first queue pair of each pair sends the first message, so it needs one receive less.
    let mut ping_pongs = HashMap::new();
    for (mut a, mut b) in qps {
        a.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
        for _ in 0..DEPTH {
            b.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
        }
        a.post_send(wr::send(pool.take().ok_or("the pool is empty")?))?;
        for (qp, remaining) in [(a, args.iters - 1), (b, args.iters)] {
            ping_pongs.insert(qp.id(), PingPong { qp, remaining });
        }
    }
    let start = Instant::now();
    let (total, mut received) = (u64::from(count) * args.iters, 0);
    while received < total {
        let id = channel
            .wait(Some(wait::TIMEOUT))?
            .ok_or_else(|| format!("wait for messages: timed out after {received} of {total}"))?;
        let cq = cqs
            .get_mut(&id)
            .ok_or("an event named an unknown completion queue")?;
        // Arm before polling, so that a completion that arrives after the last poll causes an
        // event.
        cq.arm(false)?;
        received += drain(cq, &mut ping_pongs)?;
    }
    let elapsed = start.elapsed();
    println!(
        "{total} messages in {elapsed:.2?}: {:.0} per second",
        per_second(total, elapsed)
    );

    let start = Instant::now();
    drop(ping_pongs);
    println!(
        "destroyed in {:.0?}, {} objects leaked",
        start.elapsed(),
        ibverbs::leaked_objects()
    );
    Ok(())
}

/// Handles all entries of a completion queue, and returns the number of received messages.
fn drain(cq: &mut CompletionQueue, ping_pongs: &mut HashMap<QueueId, PingPong>) -> Result<u64> {
    let mut received = 0;
    loop {
        let completions = cq.poll()?;
        if completions.is_empty() {
            return Ok(received);
        }
        for completion in completions {
            received += u64::from(handle(completion, ping_pongs)?);
        }
    }
}

/// Sends a received message back, or posts the buffer of a finished send as a receive.
///
/// Returns `true` if a message was received.
fn handle(completion: Completion<'_>, ping_pongs: &mut HashMap<QueueId, PingPong>) -> Result<bool> {
    let PingPong { qp, remaining } = ping_pongs
        .get_mut(&completion.queue())
        .ok_or("a completion named an unknown queue pair")?;
    let retired = qp.retire(completion)?;
    retired.ok()?;
    let received = retired.direction() == Direction::Recv;
    let buf = retired.into_buf().ok_or("a request had no buffer")?;
    if !received {
        qp.post_recv(wr::recv(buf))?;
    } else if *remaining > 0 {
        *remaining -= 1;
        qp.post_send(wr::send(buf))?;
    }
    Ok(received)
}

#[allow(clippy::cast_precision_loss, reason = "printed with no decimals")]
fn per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}
