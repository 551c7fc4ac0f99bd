//! Atomic operations: clients on many hosts draw numbers from a counter in the memory of the
//! server, without its CPU. Each number is given once.
//!
//! FETCH_ADD and CMP_SWAP operate on 8 aligned bytes and return the previous value.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On several hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! host1$ atomics mlx5_0                     $ atomics rxe0 &
//! host2$ atomics mlx5_0 host1               $ atomics rxe0 localhost
//! host3$ atomics mlx5_0 host1               $ atomics rxe0 localhost
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ibverbs::Psn;
use ibverbs::{
    AccessFlags, Buf, CompletionQueue, CqOptions, Device, GidQuery, ProtectionDomain, QpOptions,
    QueuePair, Rc, RcPath, RemoteMemory, wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const IB_PORT: u8 = 1;
const TCP_PORT: u16 = 18517;
/// Time limit of each request, and of each line from the peer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Numbers that a client draws.
const DRAWS: usize = 5;

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match &args[..] {
        [device] => serve(device),
        [device, server] => draw(device, server),
        _ => Err("expected arguments: DEVICE [SERVER]".into()),
    }
}

/// Opens a device and returns a path on which the peer may do `access`.
fn open(device: &str, access: AccessFlags) -> Result<(ProtectionDomain, RcPath)> {
    let context = Device::by_name(device)?.open()?;
    let gid = context.select_gid(IB_PORT, &GidQuery::default())?.entry;
    // Differs from run to run, so that late packets of an earlier run are not accepted.
    let psn = Psn(std::process::id() & 0x00ff_ffff);
    let mtu = context.query_port(IB_PORT)?.active_mtu;
    let path = RcPath::new(IB_PORT, gid.index, mtu).psn(psn).access(access);
    Ok((context.alloc_pd()?, path))
}

fn serve(device: &str) -> Result<()> {
    let (pd, path) = open(device, AccessFlags::REMOTE_ATOMIC)?;
    let cq = pd.context().create_cq(CqOptions::default())?;
    let counter = pd.shared(8, AccessFlags::REMOTE_ATOMIC)?;
    counter.store(0, 1, Ordering::Release)?;

    let listener = TcpListener::bind(("::", TCP_PORT))
        .map_err(|error| format!("listen on TCP port {TCP_PORT}: {error}"))?;
    println!("listening on TCP port {TCP_PORT}");
    // A client works alone once it has the endpoint and the key, so its queue pair is only kept
    // until it closes its TCP connection.
    std::thread::scope(|scope| {
        for stream in listener.incoming() {
            let (path, counter, cq, pd) = (&path, &counter, &cq, &pd);
            scope.spawn(move || {
                let serve_client = || -> Result<()> {
                    let mut client = BufReader::new(stream?);
                    let mut qp = pd.create_qp::<Rc>(cq, cq, QpOptions::default())?;
                    qp.init(path)?;
                    qp.connect(path, &read_line(&mut client)?.parse()?)?;
                    writeln!(
                        client.get_mut(),
                        "{} {}",
                        qp.endpoint(path)?,
                        counter.remote()
                    )?;
                    read_line(&mut client)?; // until the client has finished
                    println!("next number: {}", counter.load(0, Ordering::Acquire)?);
                    Ok(())
                };
                if let Err(error) = serve_client() {
                    eprintln!("client: {error}");
                }
            });
        }
    });
    Ok(())
}

fn draw(device: &str, server: &str) -> Result<()> {
    let (pd, path) = open(device, AccessFlags::empty())?;
    let mut cq = pd.context().create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    qp.init(&path)?;
    let mut stream = BufReader::new(
        TcpStream::connect((server, TCP_PORT))
            .map_err(|error| format!("connect to {server}, TCP port {TCP_PORT}: {error}"))?,
    );
    stream.get_ref().set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream.get_mut(), "{}", qp.endpoint(&path)?)?;
    let line = read_line(&mut stream)?;
    let (theirs, counter) = line
        .split_once(' ')
        .ok_or_else(|| format!("the server sent {line:?}, expected an endpoint and a key"))?;
    qp.connect(&path, &theirs.parse()?)?;
    let counter: RemoteMemory = counter.parse()?;

    // The request returns the previous value in its buffer.
    let mut buf = pd.buf(8)?;
    let mut next = 0;
    for _ in 0..DRAWS {
        qp.post_send(wr::fetch_add(buf, counter, 1))?;
        buf = wait(&mut cq, &mut qp)?;
        let number = u64::from_ne_bytes(buf[..].try_into()?);
        println!("drew {number}");
        next = number + 1;
    }
    // Returns the last number, if no other client has drawn since.
    qp.post_send(wr::compare_swap(buf, counter, next, next - 1))?;
    buf = wait(&mut cq, &mut qp)?;
    let found = u64::from_ne_bytes(buf[..].try_into()?);
    if found == next {
        println!("returned {}", next - 1);
    } else {
        println!("cannot return {}: the next number is {found}", next - 1);
    }
    writeln!(stream.get_mut(), "done")?;
    Ok(())
}

/// Waits for the completion of the only request in flight, and returns its buffer.
fn wait(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> Result<Buf> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        if let Some(completion) = cq.poll()?.next() {
            let retired = qp.retire(completion)?;
            retired.check()?;
            return Ok(retired.into_buf().ok_or("the request had no buffer")?);
        }
        std::thread::yield_now(); // the peer may need this processor
    }
    Err(format!("no request completed in {} s", TIMEOUT.as_secs()).into())
}

/// Reads a line from the peer.
fn read_line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.pop().ok_or("the peer closed the TCP connection")?;
    Ok(line)
}
