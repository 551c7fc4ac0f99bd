//! A datagram to and fro; speaks with the real `ibv_ud_pingpong`, in either role.
//!
//! `ud_pingpong -d rxe0` waits; `ud_pingpong -d rxe0 HOST` connects to it. A datagram that is lost
//! stays lost, and the program gives up after a while.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use examples::exchange::exchange;
use examples::local::{Local, random_psn};
use examples::pingpong::{Common, fill, print_address, require_gid};
use examples::{Result, wait};
use ibverbs::{
    AhAttr, CqOptions, Direction, Endpoint, GRH_LEN, Qkey, QpOptions, Ud,
    wr::{self, Destination},
};

/// The key that the C program uses.
const QKEY: Qkey = Qkey(0x1111_1111);

/// A datagram to and fro: a server, or with HOST its client
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    /// Bytes of a message, at most the port's MTU. The C program uses 1024, too, whatever its help
    /// says
    #[arg(short, long, default_value_t = 1024)]
    size: u32,
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse()))
}

fn run(Args { common, size }: &Args) -> Result<()> {
    let local = common.open()?;
    let mtu = local.port.active_mtu;
    if mtu.bytes().is_some_and(|bytes| *size > bytes) {
        return Err(format!(
            "a datagram is one packet: {size} bytes are more than the port's MTU of {mtu}"
        )
        .into());
    }
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
    let mut qp = pd.create_qp::<Ud>(&cq, &cq, queues)?;
    let psn = random_psn();
    qp.start(local.port_num, 0, QKEY, psn)?;

    // The device puts the global route header before what it receives.
    let pool = pd.pool(common.rx_depth as usize, GRH_LEN + *size as usize)?;
    while let Some(buf) = pool.take() {
        qp.post_recv(wr::recv(buf))?;
    }
    let sends = pd.pool(16, *size as usize)?;

    let mine = local.endpoint(qp.qp_num(), psn);
    print_address(" local", &mine);
    let mut peer = None;
    exchange(common.role(), &[mine], |theirs| {
        print_address("remote", &theirs[0]);
        require_gid(&local, &theirs[0])?;
        let handle = pd.create_ah(&way_to(&local, common.sl, &theirs[0]))?;
        peer = Some(Destination {
            address: qp.hold_address(&handle)?,
            qpn: theirs[0].qpn,
            qkey: QKEY,
        });
        Ok(())
    })?;
    let peer = peer.ok_or("there is no peer")?;

    let begun = Instant::now();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    if common.host.is_some() {
        let mut message = sends.take().ok_or("all messages are in flight")?;
        fill(&mut message);
        qp.post_send(wr::send_to(message, peer))?;
        posted += 1;
    }
    wait::until(&mut cq, channel.as_ref(), |completion| {
        let retired = qp.retire(completion)?;
        retired.ok()?;
        let direction = retired.direction();
        let buf = retired.into_buf().ok_or("a request without a buffer")?;
        if direction == Direction::Send {
            sent += 1; // and the buffer, dropped, goes back to its pool
        } else {
            received += 1;
            let payload = &buf[GRH_LEN..];
            common.check(payload, *size)?;
            if posted < common.iters {
                let mut message = sends.take().ok_or("all messages are in flight")?;
                message.copy_from_slice(payload);
                qp.post_send(wr::send_to(message, peer))?;
                posted += 1;
            }
            qp.post_recv(wr::recv(buf))?;
        }
        Ok(sent >= common.iters && received >= common.iters)
    })?;
    common.report(*size, begun);
    Ok(())
}

/// By GID where there is one, else by LID.
fn way_to(local: &Local, sl: u8, remote: &Endpoint) -> AhAttr {
    let way = match local.sgid_index() {
        Some(index) => AhAttr::to_gid(local.port_num, index, remote.gid),
        None => AhAttr::to_lid(local.port_num, remote.lid),
    };
    AhAttr {
        sl,
        dlid: remote.lid,
        ..way
    }
}
