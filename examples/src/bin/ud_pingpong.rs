//! Ping-pong over unreliable datagrams: the client sends a datagram, and each side sends back what
//! it receives. Client and server interoperate with `ibv_ud_pingpong` of rdma-core.
//!
//! Lost datagrams are not sent again, so a loss ends the program after 10 s.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! host1$ ud_pingpong mlx5_0                 $ ud_pingpong rxe0 &
//! host2$ ud_pingpong mlx5_0 host1           $ ud_pingpong rxe0 localhost
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ibverbs::{
    AhAttr, CqOptions, DatagramAttr, Device, Direction, Endpoint, GRH_LEN, GidQuery, Psn, Qkey,
    QpOptions, Ud, wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Datagram size in bytes and number of datagrams: the defaults of `ibv_ud_pingpong`.
const SIZE: usize = 1024;
const MESSAGES: u32 = 1000;
/// The Q_Key of `ibv_ud_pingpong`. A queue pair drops datagrams with a different one.
const QKEY: Qkey = Qkey(0x1111_1111);
/// Number of receives to keep posted.
const RECEIVES: usize = 16;
const IB_PORT: u8 = 1;
const TCP_PORT: u16 = 18515;
/// Time without any completion after which the program fails.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (device, server) = match &args[..] {
        [device] => (device, None),
        [device, server] => (device, Some(server.as_str())),
        _ => return Err("expected arguments: DEVICE [SERVER]".into()),
    };
    let context = Device::by_name(device)?.open()?;
    let gid = context.select_gid(IB_PORT, &GidQuery::default())?.entry;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
    // Differs from run to run, so that late packets of an earlier run are not accepted.
    let psn = Psn(std::process::id() & 0x00ff_ffff);
    qp.start(&DatagramAttr::new(IB_PORT, QKEY).psn(psn))?;

    // The device writes a global route header (GRH) in front of each received datagram.
    let receives = pd.pool(RECEIVES, GRH_LEN + SIZE)?;
    while let Some(buf) = receives.take() {
        qp.post_recv(wr::recv(buf))?;
    }
    let sends = pd.pool(RECEIVES, SIZE)?;

    let ours = Endpoint {
        qpn: qp.qp_num(),
        psn,
        lid: context.query_port(IB_PORT)?.lid,
        gid: gid.gid,
    };
    println!("local  {ours}, GID index {}", gid.index);
    let theirs = exchange(&ours, server)?;
    println!("remote {theirs}");
    // One queue pair sends to any number of peers. Each datagram names its destination.
    let address = AhAttr::for_gid(IB_PORT, gid.index, theirs.gid).dlid(theirs.lid);
    let peer = qp.destination(&address, theirs.qpn, QKEY)?;

    let start = Instant::now();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    if server.is_some() {
        let mut message = sends.take().ok_or("all send buffers are in flight")?;
        message.fill(0x5a);
        qp.post_send(wr::send(message).to(peer))?;
        posted += 1;
    }
    let mut last = Instant::now();
    while sent < MESSAGES || received < MESSAGES {
        for completion in cq.poll()? {
            last = Instant::now();
            let retired = qp.retire(completion)?;
            retired.check()?;
            if retired.direction() == Direction::Send {
                sent += 1; // dropping `retired` returns its buffer to the pool
                continue;
            }
            received += 1;
            let buf = retired.into_buf().ok_or("a receive had no buffer")?;
            let payload = &buf[GRH_LEN..];
            if payload.len() != SIZE {
                return Err(
                    format!("received {} bytes, expected {SIZE} bytes", payload.len()).into(),
                );
            }
            if posted < MESSAGES {
                let mut message = sends.take().ok_or("all send buffers are in flight")?;
                message.copy_from_slice(payload);
                qp.post_send(wr::send(message).to(peer))?;
                posted += 1;
            }
            qp.post_recv(wr::recv(buf))?;
        }
        if last.elapsed() > TIMEOUT {
            return Err(
                format!("received {received} of {MESSAGES} datagrams, then none for 10 s").into(),
            );
        }
        std::thread::yield_now(); // the peer may need this processor
    }
    let seconds = start.elapsed().as_secs_f64();
    let each = seconds * 1e6 / f64::from(MESSAGES);
    println!("{MESSAGES} iters in {seconds:.2} seconds = {each:.2} usec/iter");
    Ok(())
}

/// Exchanges endpoints with the peer over TCP, as `ibv_ud_pingpong` does.
fn exchange(ours: &Endpoint, server: Option<&str>) -> Result<Endpoint> {
    let mut stream = match server {
        Some(host) => TcpStream::connect((host, TCP_PORT))
            .map_err(|error| format!("connect to {host}, TCP port {TCP_PORT}: {error}"))?,
        None => {
            TcpListener::bind(("::", TCP_PORT))
                .map_err(|error| format!("listen on TCP port {TCP_PORT}: {error}"))?
                .accept()?
                .0
        }
    };
    stream.set_read_timeout(Some(TIMEOUT))?;
    let message = format!("{ours}\0"); // written at once, because the C program reads once
    if server.is_some() {
        stream.write_all(message.as_bytes())?;
    }
    let mut text = [0; 52];
    stream.read_exact(&mut text)?;
    let theirs: Endpoint = String::from_utf8_lossy(&text)
        .trim_end_matches('\0')
        .parse()?;
    if theirs.gid.is_zero() {
        return Err("the peer sent no GID; help: start ibv_ud_pingpong with -g INDEX".into());
    }
    if server.is_some() {
        stream.write_all(b"done\0")?;
    } else {
        stream.write_all(message.as_bytes())?;
        stream.read_exact(&mut [0; 5])?; // "done"
    }
    Ok(theirs)
}
