//! Hundreds of queue pairs that share four completion queues, one completion channel and one
//! thread.
//!
//! The thread sleeps on the channel. An event names the completion queue that has entries, and each
//! completion names its queue pair. The queue pairs are connected in pairs within this process, and
//! each pair sends one message back and forth.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On one host, also with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! $ many_qps rxe0 512
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

use ibverbs::{
    Completion, CompletionQueue, CqId, CqOptions, Device, Direction, GidQuery, QpOptions, QueueMap,
    QueuePair, Rc, RcPath, wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Number of completion queues, shared by all queue pairs.
const COMPLETION_QUEUES: u32 = 4;
/// Maximum number of sends, and of receives, in flight per queue pair.
const DEPTH: u32 = 2;
/// Message size in bytes, and number of messages that each queue pair sends.
const SIZE: usize = 64;
const MESSAGES: u32 = 20;
/// Time without any completion after which the program fails.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A queue pair and the number of messages that it still has to send.
struct PingPong {
    qp: QueuePair<Rc>,
    remaining: u32,
}

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [device, connections] = &args[..] else {
        return Err("expected arguments: DEVICE CONNECTIONS".into());
    };
    let connections: u32 = connections
        .parse()
        .ok()
        .filter(|number| (1..=1 << 16).contains(number))
        .ok_or_else(|| format!("{connections}: expected a number of connections, 1 to 65536"))?;

    let context = Device::by_name(device)?.open()?;
    let gid = context.select_gid(1, &GidQuery::default())?.entry;
    let path = RcPath::new(1, gid.index, context.query_port(1)?.active_mtu);
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let per_queue = connections.div_ceil(COMPLETION_QUEUES) * 2;
    let options = CqOptions::new()
        .depth(per_queue * DEPTH * 2)
        .channel(&channel);
    let mut cqs = Vec::new();
    for _ in 0..COMPLETION_QUEUES {
        let mut cq = context.create_cq(options)?;
        cq.arm(false)?; // before the first post, because an earlier completion causes no event
        cqs.push(cq);
    }

    let start = Instant::now();
    let options = QpOptions::new()
        .max_send_wr(DEPTH)
        .max_recv_wr(DEPTH)
        .max_batch(1);
    let mut qps = Vec::new();
    for cq in cqs.iter().cycle().take(connections as usize) {
        let mut a = pd.create_qp::<Rc>(cq, cq, options)?;
        let mut b = pd.create_qp::<Rc>(cq, cq, options)?;
        a.init(&path)?;
        b.init(&path)?;
        a.connect(&path, &b.endpoint(&path)?)?;
        b.connect(&path, &a.endpoint(&path)?)?;
        qps.push((a, b));
    }
    println!(
        "{} queue pairs connected in {:.1?}",
        connections * 2,
        start.elapsed()
    );

    // The first queue pair of each pair sends the first message, so it needs one receive less.
    let pool = pd.pool(connections as usize * 4, SIZE)?;
    let take = || pool.take().ok_or("the pool is empty");
    let mut ping_pongs = QueueMap::default();
    for (mut a, mut b) in qps {
        a.post_recv(wr::recv(take()?))?;
        for _ in 0..DEPTH {
            b.post_recv(wr::recv(take()?))?;
        }
        a.post_send(wr::send(take()?))?;
        ping_pongs.insert(
            a.id(),
            PingPong {
                qp: a,
                remaining: MESSAGES - 1,
            },
        );
        ping_pongs.insert(
            b.id(),
            PingPong {
                qp: b,
                remaining: MESSAGES,
            },
        );
    }

    let start = Instant::now();
    let mut cqs: HashMap<CqId, CompletionQueue> = cqs.into_iter().map(|cq| (cq.id(), cq)).collect();
    let (total, mut received) = (connections * 2 * MESSAGES, 0);
    while received < total {
        let id = channel.wait(Some(TIMEOUT))?.ok_or_else(|| {
            format!("received {received} of {total} messages, then none for 10 s")
        })?;
        let cq = cqs
            .get_mut(&id)
            .ok_or("an event named an unknown completion queue")?;
        // Armed before polling, so that a completion after the last poll causes an event.
        cq.arm(false)?;
        while !cq.poll()?.is_empty() {
            for completion in cq.poll()? {
                received += u32::from(handle(completion, &mut ping_pongs)?);
            }
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{total} messages in {seconds:.2} s: {:.0} per second",
        f64::from(total) / seconds
    );

    let start = Instant::now();
    drop(ping_pongs);
    println!(
        "destroyed in {:.1?}, {} objects leaked",
        start.elapsed(),
        ibverbs::leaked_objects()
    );
    Ok(())
}

/// Sends a received message back, or posts the buffer of a finished send as a receive.
///
/// Returns `true` if a message was received.
fn handle(completion: Completion<'_>, ping_pongs: &mut QueueMap<PingPong>) -> Result<bool> {
    let PingPong { qp, remaining } = ping_pongs
        .get_mut(&completion.queue())
        .ok_or("a completion named an unknown queue pair")?;
    let retired = qp.retire(completion)?;
    retired.check()?;
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
