//! Ping-pong over an extended reliable connection (XRC): each side has a sending and a receiving
//! half, and a message names the shared receive queue that it is for. Client and server
//! interoperate with `ibv_xsrq_pingpong` of rdma-core.
//!
//! With XRC one connection to a host is enough to reach the receive queues of all its processes.
//! InfiniBand and RoCE adapters have it, Soft-RoCE and Soft-iWARP do not.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts:
//!
//! ```text
//! host1$ xrc_pingpong mlx5_0
//! host2$ xrc_pingpong mlx5_0 host1
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ibverbs::xrc::SrqNum;
use ibverbs::{
    CqOptions, Device, Endpoint, Gid, GidQuery, Lid, Mtu, Psn, QpOptions, Qpn, RcPath, SrqOptions,
    wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Message size in bytes, number of messages and path MTU: the defaults of `ibv_xsrq_pingpong`.
const SIZE: usize = 4096;
const MESSAGES: u32 = 5;
const MTU: Mtu = Mtu::B1024;
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
    // Receive queues and receiving halves in the same domain belong together.
    let xrcd = context.open_xrcd()?;
    let gid = context.select_gid(IB_PORT, &GidQuery::default())?.entry;
    // Differs from run to run, so that late packets of an earlier run are not accepted.
    let psn = Psn(std::process::id() & 0x00ff_ffff);
    let path = RcPath::new(IB_PORT, gid.index, MTU).psn(psn);
    let pd = context.alloc_pd()?;
    let mut send_cq = context.create_cq(CqOptions::default())?;
    let mut recv_cq = context.create_cq(CqOptions::default())?;
    let mut srq = pd.create_xrc_srq(&xrcd, &recv_cq, SrqOptions::default())?;
    let mut receiver = xrcd.create_xrc_recv_qp()?;
    let mut sender = pd.create_xrc_send_qp(&send_cq, QpOptions::default())?;
    receiver.init(&path)?;
    sender.init(&path)?;
    let pool = pd.pool(4, SIZE)?; // one receive, one send in flight, one to send next
    srq.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;

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
    let ours = Peer {
        lid: context.query_port(IB_PORT)?.lid,
        receiver: receiver.qp_num(),
        sender: sender.qp_num(),
        psn: path.psn,
        srq: srq.srq_num()?,
        gid: gid.gid,
    };
    println!("local  {ours:?}, GID index {}", gid.index);
    let theirs = exchange(&mut stream, &ours)?;
    println!("remote {theirs:?}");
    // Our sending half is connected to their receiving half, and theirs to ours.
    receiver.connect(&path, &theirs.endpoint(theirs.sender))?;
    sender.connect(&path, &theirs.endpoint(theirs.receiver))?;

    // The server sends first. Its first message may arrive before the client's receiving half is
    // connected, and is then sent again.
    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    let mut next = server.is_none().then(|| pool.take()).flatten();
    let mut last = Instant::now();
    while sent < MESSAGES || received < MESSAGES {
        if let Some(message) = next.take() {
            sender.post_send(wr::send(message).for_srq(theirs.srq))?;
        }
        for completion in send_cq.poll()? {
            last = Instant::now();
            sender.retire(completion)?.check()?;
            sent += 1;
        }
        for completion in recv_cq.poll()? {
            last = Instant::now();
            let retired = srq.retire(completion)?;
            retired.check()?;
            received += 1;
            srq.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
            // The client answers every message, the server sends one less than it receives.
            if server.is_some() || received < MESSAGES {
                next = retired.into_buf();
            }
        }
        if last.elapsed() > TIMEOUT {
            return Err(
                format!("received {received} of {MESSAGES} messages, then none for 10 s").into(),
            );
        }
        std::thread::yield_now(); // the peer may need this processor
    }
    let seconds = start.elapsed().as_secs_f64();
    let each = seconds * 1e6 / f64::from(MESSAGES);
    println!("{MESSAGES} iters in {seconds:.2} seconds = {each:.2} usec/iter");
    // Neither side may destroy its receiving half before the other has finished.
    stream.write_all(b"END\0")?;
    stream.read_exact(&mut [0; 4])?;
    Ok(())
}

/// The numbers that one side needs from the other.
#[derive(Debug)]
struct Peer {
    lid: Lid,
    receiver: Qpn,
    sender: Qpn,
    psn: Psn,
    srq: SrqNum,
    gid: Gid,
}

impl Peer {
    /// Returns the endpoint of one of the two halves.
    fn endpoint(&self, qpn: Qpn) -> Endpoint {
        Endpoint {
            qpn,
            psn: self.psn,
            lid: self.lid,
            gid: self.gid,
        }
    }
}

/// Exchanges numbers with the peer over TCP in the format of `ibv_xsrq_pingpong`: 65 characters and
/// a NUL.
fn exchange(stream: &mut TcpStream, ours: &Peer) -> Result<Peer> {
    // Written at once, because the C program reads once.
    let message = format!(
        "{:04x}:{:06x}:{:06x}:{:06x}:{:06x}:{:032x}\0",
        ours.lid.0,
        ours.receiver.0,
        ours.sender.0,
        ours.psn.0,
        ours.srq.0,
        u128::from_be_bytes(ours.gid.0)
    );
    stream.write_all(message.as_bytes())?;
    let mut text = [0; 66];
    stream.read_exact(&mut text)?;
    let text = String::from_utf8_lossy(&text)
        .trim_end_matches('\0')
        .to_owned();
    let fields: Vec<&str> = text.split(':').collect();
    let [lid, receiver, sender, psn, srq, gid] = fields[..] else {
        return Err(format!("the peer sent {text:?}, expected six numbers").into());
    };
    let number = |digits| u32::from_str_radix(digits, 16);
    Ok(Peer {
        lid: Lid(u16::from_str_radix(lid, 16)?),
        receiver: Qpn(number(receiver)?),
        sender: Qpn(number(sender)?),
        psn: Psn(number(psn)?),
        srq: SrqNum(number(srq)?),
        gid: Gid(u128::from_str_radix(gid, 16)?.to_be_bytes()),
    })
}
