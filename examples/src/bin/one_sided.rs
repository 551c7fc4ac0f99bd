//! RDMA WRITE and READ: the client writes to the memory of the server and reads it back, without
//! the server's CPU. The server sends the address and the key of the memory over TCP.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! host1$ one_sided mlx5_0                   $ one_sided rxe0 &
//! host2$ one_sided mlx5_0 host1             $ one_sided rxe0 localhost
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ibverbs::Psn;
use ibverbs::{
    AccessFlags, Buf, CompletionQueue, CqOptions, Device, Endpoint, GidQuery, ProtectionDomain,
    QpOptions, QueuePair, Rc, RcPath, RemoteMemory, Retired, wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const IB_PORT: u8 = 1;
const TCP_PORT: u16 = 18516;
/// Time limit of each request, and of each line from the peer.
const TIMEOUT: Duration = Duration::from_secs(10);

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
        [device, server] => access(device, server),
        _ => Err("expected arguments: DEVICE [SERVER]".into()),
    }
}

/// A queue pair in INIT with everything that it needs.
struct Local {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair<Rc>,
    path: RcPath,
}

impl Local {
    /// Opens a device. `access` is what the peer may do through this queue pair.
    fn open(device: &str, access: AccessFlags) -> Result<Self> {
        let context = Device::by_name(device)?.open()?;
        let gid = context.select_gid(IB_PORT, &GidQuery::default())?.entry;
        // Differs from run to run, so that late packets of an earlier run are not accepted.
        let psn = Psn(std::process::id() & 0x00ff_ffff);
        let mtu = context.query_port(IB_PORT)?.active_mtu;
        let path = RcPath::new(IB_PORT, gid.index, mtu).psn(psn).access(access);
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(CqOptions::default())?;
        let mut qp = pd.create_qp(&cq, &cq, QpOptions::default())?;
        qp.init(&path)?;
        Ok(Self { pd, cq, qp, path })
    }

    /// Waits for the completion of the only request in flight.
    fn wait(&mut self) -> Result<Retired> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(completion) = self.cq.poll()?.next() {
                return Ok(self.qp.retire(completion)?);
            }
            std::thread::yield_now(); // the peer may need this processor
        }
        Err(format!("no request completed in {} s", TIMEOUT.as_secs()).into())
    }

    /// Waits for the completion of the only request in flight, and returns its buffer.
    fn wait_buf(&mut self) -> Result<Buf> {
        let retired = self.wait()?;
        retired.check()?;
        Ok(retired.into_buf().ok_or("the request had no buffer")?)
    }
}

fn serve(device: &str) -> Result<()> {
    // A remote operation needs the permission of both the queue pair and the memory.
    let mut local = Local::open(device, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)?;
    let memory = local
        .pd
        .shared(4096, AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE)?;
    let protected = local.pd.shared(4096, AccessFlags::REMOTE_READ)?;
    memory.write(0, b"good morning")?;
    // A WRITE with immediate data consumes a receive. It needs no buffer.
    local.qp.post_recv(wr::recv(wr::Empty))?;

    let mut client = BufReader::new(
        TcpListener::bind(("::", TCP_PORT))
            .map_err(|error| format!("listen on TCP port {TCP_PORT}: {error}"))?
            .accept()?
            .0,
    );
    client.get_ref().set_read_timeout(Some(TIMEOUT))?;
    let theirs: Endpoint = read_line(&mut client)?.parse()?;
    local.qp.connect(&local.path, &theirs)?;
    let ours = local.qp.endpoint(&local.path)?;
    let [memory_key, protected_key] = [memory.remote(), protected.remote()];
    writeln!(client.get_mut(), "{ours} {memory_key} {protected_key}")?;

    let received = local.wait()?;
    received.check()?;
    let mut bytes = vec![0; received.received_len()];
    // The peer may write at any time, so the region is never borrowed: `read` copies from it.
    memory.read(64, &mut bytes)?;
    println!(
        "the client wrote {:?} with immediate data {}",
        String::from_utf8_lossy(&bytes),
        received.imm_data().unwrap_or(0)
    );
    read_line(&mut client)?; // the memory stays registered until the client has finished
    Ok(())
}

fn access(device: &str, server: &str) -> Result<()> {
    let mut local = Local::open(device, AccessFlags::empty())?;
    let mut stream = BufReader::new(
        TcpStream::connect((server, TCP_PORT))
            .map_err(|error| format!("connect to {server}, TCP port {TCP_PORT}: {error}"))?,
    );
    stream.get_ref().set_read_timeout(Some(TIMEOUT))?;
    writeln!(stream.get_mut(), "{}", local.qp.endpoint(&local.path)?)?;
    let line = read_line(&mut stream)?;
    let fields: Vec<&str> = line.split(' ').collect();
    let [theirs, memory, protected] = fields[..] else {
        return Err(format!("the server sent {line:?}, expected an endpoint and two keys").into());
    };
    local.qp.connect(&local.path, &theirs.parse()?)?;
    let memory: RemoteMemory = memory.parse()?;
    let protected: RemoteMemory = protected.parse()?;

    let greeting = memory
        .slice(0..12)
        .ok_or("the server's memory is too small")?;
    let buf = local.pd.buf(12)?;
    local.qp.post_send(wr::read(buf, greeting))?;
    let mut buf = local.wait_buf()?;
    println!("READ {:?}", String::from_utf8_lossy(&buf));

    // Only immediate data causes a completion at the server. Without it, a WRITE is invisible.
    let answer = memory
        .slice(64..76)
        .ok_or("the server's memory is too small")?;
    buf.copy_from_slice(b"good evening");
    local.qp.post_send(wr::write_with_imm(buf, answer, 42))?;
    let buf = local.wait_buf()?;
    println!(
        "WRITE {:?} with immediate data 42",
        String::from_utf8_lossy(&buf)
    );

    // A request that the server's memory does not permit fails and ends the connection. The
    // completion returns the buffer nevertheless.
    local.qp.post_send(wr::write(buf, protected))?;
    let refused = local.wait()?;
    println!("WRITE to read-only memory: {}", refused.status());
    println!("queue pair in state {}", local.qp.state()?);
    writeln!(stream.get_mut(), "done")?;
    Ok(())
}

/// Reads a line from the peer.
fn read_line(stream: &mut BufReader<TcpStream>) -> Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line)?;
    line.pop().ok_or("the peer closed the TCP connection")?;
    Ok(line)
}
