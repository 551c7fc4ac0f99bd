//! Messages to and fro over many connections that receive from one shared queue; speaks with the
//! real `ibv_srq_pingpong`, in either role.
//!
//! `srq_pingpong -d rxe0` waits; `srq_pingpong -d rxe0 HOST` connects to it.

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

/// How many endpoints the C program tells and wants to hear, whatever the number of queue pairs.
const TOLD: usize = 256;
const NOWHERE: Endpoint = Endpoint {
    qpn: Qpn(0),
    psn: Psn(0),
    lid: Lid(0),
    gid: Gid([0; 16]),
};
/// Sends that a queue pair can have in flight.
const SENDS: u32 = 4;

/// Messages to and fro over many connections with one shared receive queue: a server, or with HOST
/// its client
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    /// Bytes of a message
    #[arg(short, long, default_value_t = 4096)]
    size: u32,
    /// Path MTU in bytes
    #[arg(short, long, default_value = "1024", value_parser = parse_mtu)]
    mtu: Mtu,
    /// Queue pairs
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
            "{num_qp} queue pairs need as many receives: give --rx-depth {num_qp} or more"
        )
        .into());
    }
    let local = common.open()?;
    let pd = local.context.alloc_pd()?;
    let channel = common
        .events
        .then(|| local.context.create_comp_channel())
        .transpose()?;
    let depth = common.rx_depth + num_qp * SENDS;
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
    let (mut qps, mut mine) = (Vec::new(), vec![NOWHERE; TOLD]);
    for place in mine.iter_mut().take(*num_qp as usize) {
        let queues = QpOptions {
            max_send_wr: SENDS,
            max_batch: 1,
            ..QpOptions::default()
        };
        let mut qp = pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, queues)?;
        qp.init(&path)?;
        *place = qp.endpoint(&path)?;
        print_address(" local", place);
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

    let begun = Instant::now();
    let (mut sent, mut received) = (0, 0);
    if common.host.is_some() {
        for qp in &mut qps {
            let mut message = pool.take().ok_or("the pool is empty")?;
            fill(&mut message);
            qp.post_send(wr::send(message))?;
        }
    }
    // The counts are those of all queue pairs together.
    wait::until(&mut cq, channel.as_ref(), |completion| {
        let qpn = completion.qp_num();
        let qp = qps
            .iter_mut()
            .find(|qp| qp.qp_num() == qpn)
            .ok_or_else(|| format!("no queue pair {qpn}"))?;
        // Receives are retired by the queue that they were posted to, sends by the queue pair.
        if completion.queue() == srq.id() {
            let retired = srq.retire(completion)?;
            retired.ok()?;
            let buf = retired.into_buf().ok_or("a receive without a buffer")?;
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
                srq.post_recv(wr::recv(
                    retired.into_buf().ok_or("a send without a buffer")?,
                ))?;
            }
        }
        Ok(sent >= common.iters && received >= common.iters)
    })?;
    common.report(*size, begun);
    Ok(())
}
