//! Ping-pong over a reliable connection: the client sends a message, and each side sends back what
//! it receives. Client and server interoperate with `ibv_rc_pingpong` of rdma-core.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! host1$ rc_pingpong mlx5_0                 $ rc_pingpong rxe0 &
//! host2$ rc_pingpong mlx5_0 host1           $ rc_pingpong rxe0 localhost
//! ```

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ibverbs::{
    CqOptions, Device, Direction, Endpoint, GidQuery, Mtu, Psn, QpOptions, QueuePair, Rc, RcPath,
    wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Message size in bytes, number of messages and path MTU: the defaults of `ibv_rc_pingpong`.
const SIZE: usize = 4096;
const MESSAGES: u32 = 1000;
const MTU: Mtu = Mtu::B1024;
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
    // Differs from run to run, so that late packets of an earlier run are not accepted.
    let psn = Psn(std::process::id() & 0x00ff_ffff);
    let path = RcPath::new(IB_PORT, gid.index, MTU).psn(psn);
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    qp.init(&path)?;

    // The receives are posted before the peer gets the endpoint, because it may send immediately.
    let pool = pd.pool(RECEIVES + 1, SIZE)?;
    for _ in 0..RECEIVES {
        qp.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
    }
    connect(&mut qp, &path, server)?;

    let start = Instant::now();
    let (mut posted, mut sent, mut received) = (0, 0, 0);
    if server.is_some() {
        let mut message = pool.take().ok_or("the pool is empty")?;
        message.fill(0x5a);
        qp.post_send(wr::send(message))?;
        posted += 1;
    }
    let mut last = Instant::now();
    while sent < MESSAGES || received < MESSAGES {
        for completion in cq.poll()? {
            last = Instant::now();
            let retired = qp.retire(completion)?;
            retired.check()?;
            let direction = retired.direction();
            let buf = retired.into_buf().ok_or("a request had no buffer")?;
            // The buffer of a receive becomes the next send, and the buffer of a send the next
            // receive: no data are copied.
            if direction == Direction::Send {
                sent += 1;
                qp.post_recv(wr::recv(buf))?;
            } else {
                received += 1;
                check(&buf)?;
                if posted < MESSAGES {
                    qp.post_send(wr::send(buf))?;
                    posted += 1;
                }
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
    Ok(())
}

/// Exchanges endpoints with the peer over TCP, as `ibv_rc_pingpong` does, and connects.
fn connect(qp: &mut QueuePair<Rc>, path: &RcPath, server: Option<&str>) -> Result<()> {
    let ours = qp.endpoint(path)?;
    println!(
        "local  {ours}, GID index {}",
        path.sgid_index.map_or(0, u32::from)
    );
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
    // The client sends first. The server answers when its queue pair is connected, because the
    // client may send a message as soon as it has the answer.
    if server.is_some() {
        stream.write_all(message.as_bytes())?;
    }
    let mut text = [0; 52];
    stream.read_exact(&mut text)?;
    let theirs: Endpoint = String::from_utf8_lossy(&text)
        .trim_end_matches('\0')
        .parse()?;
    println!("remote {theirs}");
    if theirs.gid.is_zero() {
        return Err("the peer sent no GID; help: start ibv_rc_pingpong with -g INDEX".into());
    }
    qp.connect(path, &theirs)?;
    if server.is_some() {
        stream.write_all(b"done\0")?;
    } else {
        stream.write_all(message.as_bytes())?;
        stream.read_exact(&mut [0; 5])?; // "done"
    }
    Ok(())
}

/// Checks the size of a received message.
fn check(message: &[u8]) -> Result<()> {
    if message.len() == SIZE {
        return Ok(());
    }
    Err(format!(
        "received {} bytes, expected {SIZE} bytes; help: start ibv_rc_pingpong with -s {SIZE}",
        message.len()
    )
    .into())
}
