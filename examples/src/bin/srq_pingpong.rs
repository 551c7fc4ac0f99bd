//! Ping-pong over many connections with one shared receive queue. Client and server interoperate
//! with `ibv_srq_pingpong`.
//!
//! `srq_pingpong -d rxe0` is the server; `srq_pingpong -d rxe0 HOST` is its client.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use examples::exchange::exchange;
use examples::pingpong::{Common, fill, parse_mtu, print_address, require_gid};
use examples::{Result, wait};
use ibverbs::{
    AccessFlags, CqOptions, Endpoint, Gid, Lid, Mtu, Psn, QpOptions, Qpn, Rc, RcPath, SrqOptions,
    wr,
};

/// Number of endpoints in the message of `ibv_srq_pingpong`, independent of the number of queue
/// pairs.
const MESSAGE_ENDPOINTS: usize = 256;
/// Fills the unused part of that message.
const UNUSED: Endpoint = Endpoint {
    qpn: Qpn(0),
    psn: Psn(0),
    lid: Lid(0),
    gid: Gid([0; 16]),
};
/// Maximum number of sends in flight per queue pair.
const MAX_SENDS: u32 = 4;

/// Ping-pong over many connections with one shared receive queue: a client if HOST is given, else a
/// server
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    /// Message size in bytes
    #[arg(short, long, default_value_t = 4096)]
    size: u32,
    /// Path MTU in bytes
    #[arg(short, long, default_value = "1024", value_parser = parse_mtu)]
    mtu: Mtu,
    /// Number of queue pairs
    #[arg(short = 'q', long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=255))]
    num_qp: u32,
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse()))
}

fn run(
    Args {
        common,
        size,
        mtu,
        num_qp,
    }: &Args,
) -> Result<()> {
    if common.rx_depth < *num_qp {
        return Err(format!(
            "start {num_qp} queue pairs: each needs a receive, and --rx-depth is {}\n\
             help: set --rx-depth to {num_qp} or more",
            common.rx_depth
        )
        .into());
    }
    let local = common.open()?;
    let pd = local.context.alloc_pd()?;
    let channel = common
        .events
        .then(|| local.context.create_comp_channel())
        .transpose()?;
    let depth = common.rx_depth + num_qp * MAX_SENDS;
    let mut cq = local.context.create_cq(CqOptions {
        depth,
        channel: channel.as_ref(),
        ..CqOptions::default()
    })?;
    let mut srq = pd.create_srq(SrqOptions {
        max_wr: common.rx_depth,
        ..SrqOptions::default()
    })?;
    let pool = pd.pool((common.rx_depth + num_qp) as usize, *size as usize)?;
    for _ in 0..common.rx_depth {
        srq.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
    }

    let path = RcPath {
        sl: common.sl,
        ..local.path(*mtu, AccessFlags::empty())
    };
    let (mut qps, mut mine) = (Vec::new(), vec![UNUSED; MESSAGE_ENDPOINTS]);
    for endpoint in mine.iter_mut().take(*num_qp as usize) {
        let queues = QpOptions {
            max_send_wr: MAX_SENDS,
            max_batch: 1,
            ..QpOptions::default()
        };
        let mut qp = pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, queues)?;
        qp.init(&path)?;
        *endpoint = qp.endpoint(&path)?;
        print_address(" local", endpoint);
        qps.push(qp);
    }
    exchange(common.role(), &mine, |theirs| {
        for (qp, remote) in qps.iter_mut().zip(theirs) {
            print_address("remote", remote);
            require_gid(&local, remote)?;
            qp.connect(&path, remote)?;
        }
        Ok(())
    })?;

    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    if common.host.is_some() {
        for qp in &mut qps {
            let mut message = pool.take().ok_or("the pool is empty")?;
            fill(&mut message);
            qp.post_send(wr::send(message))?;
        }
    }
    // `sent` and `received` count the messages of all queue pairs together.
    wait::until(&mut cq, channel.as_ref(), |completion| {
        let qpn = completion.qp_num();
        let qp = qps
            .iter_mut()
            .find(|qp| qp.qp_num() == qpn)
            .ok_or_else(|| format!("a completion named the unknown queue pair {qpn}"))?;
        // A request is retired by the object that it was posted to: here receives by the SRQ.
        if completion.queue() == srq.id() {
            let retired = srq.retire(completion)?;
            retired.ok()?;
            let buf = retired.into_buf().ok_or("a receive had no buffer")?;
            received += 1;
            common.check(&buf, *size)?;
            if sent < common.iters {
                qp.post_send(wr::send(buf))?;
            } else {
                srq.post_recv(wr::recv(buf))?;
            }
        } else {
            let retired = qp.retire(completion)?;
            retired.ok()?;
            sent += 1;
            if srq.recv_slots_free() > 0 {
                srq.post_recv(wr::recv(retired.into_buf().ok_or("a send had no buffer")?))?;
            }
        }
        Ok(sent >= common.iters && received >= common.iters)
    })?;
    common.report(*size, start);
    Ok(())
}
