//! Ping-pong over 16 reliable connections that share one receive queue (SRQ). Client and server
//! interoperate with `ibv_srq_pingpong` of rdma-core.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! host1$ srq_pingpong mlx5_0                $ srq_pingpong rxe0 &
//! host2$ srq_pingpong mlx5_0 host1          $ srq_pingpong rxe0 localhost
//! ```

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ibverbs::{
    CqOptions, Device, Endpoint, GidQuery, Mtu, Psn, QpOptions, Qpn, QueuePair, Rc, RcPath,
    SrqOptions, wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Message size in bytes, number of messages on all connections together, path MTU and number of
/// connections: the defaults of `ibv_srq_pingpong`.
const SIZE: usize = 4096;
const MESSAGES: u32 = 1000;
const MTU: Mtu = Mtu::B1024;
const CONNECTIONS: usize = 16;
/// Number of endpoints that `ibv_srq_pingpong` exchanges, whatever the number of connections.
const ENDPOINTS: usize = 256;
/// Number of receives to keep posted.
const RECEIVES: usize = 64;
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
    println!("GID {}, index {}", gid.gid, gid.index);
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let mut srq = pd.create_srq(SrqOptions::default())?;
    let pool = pd.pool(RECEIVES + CONNECTIONS, SIZE)?;
    for _ in 0..RECEIVES {
        srq.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
    }
    let mut qps = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut qp = pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default())?;
        qp.init(&path)?;
        qps.push(qp);
    }
    connect(&mut qps, &path, server)?;

    let start = Instant::now();
    let (mut sent, mut received) = (0, 0);
    if server.is_some() {
        for qp in &mut qps {
            let mut message = pool.take().ok_or("the pool is empty")?;
            message.fill(0x5a);
            qp.post_send(wr::send(message))?;
        }
    }
    // A completion names the number of its queue pair.
    let mut qps: HashMap<Qpn, QueuePair<Rc>> =
        qps.into_iter().map(|qp| (qp.qp_num(), qp)).collect();
    let mut last = Instant::now();
    while sent < MESSAGES || received < MESSAGES {
        for completion in cq.poll()? {
            last = Instant::now();
            let qp = qps
                .get_mut(&completion.qp_num())
                .ok_or("unknown queue pair")?;
            // A request is retired by the object that it was posted to: a receive by the SRQ.
            if completion.queue() == srq.id() {
                let retired = srq.retire(completion)?;
                retired.check()?;
                let buf = retired.into_buf().ok_or("a receive had no buffer")?;
                received += 1;
                if buf.len() != SIZE {
                    return Err(
                        format!("received {} bytes, expected {SIZE} bytes", buf.len()).into(),
                    );
                }
                if sent < MESSAGES {
                    qp.post_send(wr::send(buf))?;
                    continue;
                }
            } else {
                qp.retire(completion)?.check()?; // the buffer returns to the pool
                sent += 1;
            }
            if srq.recv_slots_free() > 0 {
                srq.post_recv(wr::recv(pool.take().ok_or("the pool is empty")?))?;
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

/// Exchanges endpoints with the peer over TCP, as `ibv_srq_pingpong` does, and connects.
fn connect(qps: &mut [QueuePair<Rc>], path: &RcPath, server: Option<&str>) -> Result<()> {
    let mut ours = String::new();
    for qp in qps.iter() {
        ours = format!("{ours}{}\0", qp.endpoint(path)?);
    }
    let unused = "0000:000000:000000:00000000000000000000000000000000\0";
    ours += &unused.repeat(ENDPOINTS - qps.len());

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
    // The client sends first. The server answers when its queue pairs are connected, because the
    // client may send messages as soon as it has the answer.
    if server.is_some() {
        stream.write_all(ours.as_bytes())?;
    }
    let mut text = vec![0; ours.len()];
    stream.read_exact(&mut text)?;
    let text = String::from_utf8(text)?;
    for (qp, theirs) in qps.iter_mut().zip(text.split('\0')) {
        let theirs: Endpoint = theirs.parse()?;
        if theirs.gid.is_zero() {
            return Err("the peer sent no GID; help: start ibv_srq_pingpong with -g INDEX".into());
        }
        qp.connect(path, &theirs)?;
    }
    if server.is_some() {
        stream.write_all(b"done\0")?;
    } else {
        stream.write_all(ours.as_bytes())?;
        stream.read_exact(&mut [0; 5])?; // "done"
    }
    Ok(())
}
