//! Ping-pong over unreliable datagrams. Client and server interoperate with `ibv_ud_pingpong`.
//!
//! `ud_pingpong -d rxe0` is the server; `ud_pingpong -d rxe0 HOST` is its client. Lost datagrams
//! are not retransmitted: after a loss the program times out.

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

/// The Q_Key of `ibv_ud_pingpong`.
const QKEY: Qkey = Qkey(0x1111_1111);

/// Ping-pong over unreliable datagrams: a client if HOST is given, else a server
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    common: Common,
    /// Message size in bytes, at most the MTU of the port
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
            "send messages of {size} bytes: a datagram is limited to the port's MTU of {mtu} bytes"
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

    // The device writes a global route header in front of each received message.
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
        let handle = pd.create_ah(&address_of(&local, common.sl, &theirs[0]))?;
        peer = Some(Destination {
            address: qp.hold_address(&handle)?,
            qpn: theirs[0].qpn,
            qkey: QKEY,
        });
        Ok(())
    })?;
    let peer = peer.ok_or("the peer sent no endpoint")?;

    let start = Instant::now();
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
        let buf = retired.into_buf().ok_or("a request had no buffer")?;
        if direction == Direction::Send {
            sent += 1; // dropping `buf` returns it to its pool
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
    common.report(*size, start);
    Ok(())
}

/// Returns the address of an endpoint: its GID if this port uses one, else its LID.
fn address_of(local: &Local, sl: u8, remote: &Endpoint) -> AhAttr {
    let attr = match local.sgid_index() {
        Some(index) => AhAttr::for_gid(local.port_num, index, remote.gid),
        None => AhAttr::for_lid(local.port_num, remote.lid),
    };
    AhAttr {
        sl,
        dlid: remote.lid,
        ..attr
    }
}
