//! Ping-pong over one connection: the implementation of `rc_pingpong` and `uc_pingpong`.

use std::time::Instant;

use clap::Args;
use ibverbs::{
    AccessFlags, ConnectedDuplexTransport, CqOptions, Direction, Mtu, QpOptions, RcPath, wr,
};

use super::options::{Common, fill, parse_mtu, print_address, require_gid};
use crate::exchange::exchange;
use crate::{Result, wait};

/// Options of `rc_pingpong` and `uc_pingpong`.
#[derive(Args, Clone, Debug)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Message size in bytes
    #[arg(short, long, default_value_t = 4096)]
    size: u32,
    /// Path MTU in bytes
    #[arg(short, long, default_value = "1024", value_parser = parse_mtu)]
    mtu: Mtu,
}

/// Runs the client or the server.
///
/// # Errors
/// The device cannot be used, the peer cannot be reached, or a request fails.
pub fn run<T: ConnectedDuplexTransport>(options: &Options) -> Result<()> {
    let Options { common, size, mtu } = options;
    let local = common.open()?;
    let pd = local.context.alloc_pd()?;
    let channel = common
        .events
        .then(|| local.context.create_comp_channel())
        .transpose()?;
    let depth = common.rx_depth + 16;
    let mut cq = local.context.create_cq(CqOptions {
        depth,
        channel: channel.as_ref(),
        ..CqOptions::default()
    })?;
    let queues = QpOptions {
        max_send_wr: 16,
        max_recv_wr: common.rx_depth,
        ..QpOptions::default()
    };
    let mut qp = pd.create_qp::<T>(&cq, &cq, queues)?;

    // The receives must be posted before the peer gets the address, because it may send
    // immediately.
    let path = RcPath {
        sl: common.sl,
        ..local.path(*mtu, AccessFlags::empty())
    };
    qp.init(&path)?;
    let pool = pd.pool(common.rx_depth as usize + 1, *size as usize)?;
    let mut first = pool.take().ok_or("the pool is empty")?;
    while let Some(buf) = pool.take() {
        qp.post_recv(wr::recv(buf))?;
    }

    let mine = qp.endpoint(&path)?;
    print_address(" local", &mine);
    exchange(common.role(), &[mine], |theirs| {
        print_address("remote", &theirs[0]);
        require_gid(&local, &theirs[0])?;
        Ok(qp.connect(&path, &theirs[0])?)
    })?;

    let start = Instant::now();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    if common.host.is_some() {
        fill(&mut first);
        qp.post_send(wr::send(first))?;
        posted += 1;
    }
    // The buffer of a receive becomes the next send, and the buffer of a send the next receive: no
    // data are copied.
    wait::until(&mut cq, channel.as_ref(), |completion| {
        let retired = qp.retire(completion)?;
        retired.ok()?;
        let direction = retired.direction();
        let buf = retired.into_buf().ok_or("a request had no buffer")?;
        if direction == Direction::Send {
            sent += 1;
            qp.post_recv(wr::recv(buf))?;
        } else {
            received += 1;
            common.check(&buf, *size)?;
            if posted < common.iters {
                posted += 1;
                qp.post_send(wr::send(buf))?;
            }
        }
        Ok(sent >= common.iters && received >= common.iters)
    })?;
    common.report(*size, start);
    Ok(())
}
