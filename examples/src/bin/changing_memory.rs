//! RDMA READs of memory that changes at the same time. A READ is not atomic: it may return a
//! mixture of two versions, and a checksum in the record shows that. The server sends the address
//! and the key of the record when it accepts the connection. It runs on InfiniBand, RoCE and iWARP.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`), always
//! with the address of the server:
//!
//! ```text
//! host1$ changing_memory serve 10.0.0.1:7471    $ changing_memory serve 10.0.0.1:7471 &
//! host2$ changing_memory read 10.0.0.1:7471     $ changing_memory read 10.0.0.1:7471
//! ```

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ibverbs::{AccessFlags, CompletionQueue, CqOptions, QpOptions, RemoteMemory, wr};
use rdmacm::{ConnectParams, ConnectRequest, Connection, Listener, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Length of the record in bytes: a checksum and the same number 31 times.
const RECORD_LEN: usize = 8 * 32;
/// Number of READs, and the pause before each of them.
const READS: u32 = 200;
const PAUSE: Duration = Duration::from_millis(1);
/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", address] => serve(parse(address)?),
        ["read", address] => read(parse(address)?),
        _ => Err("expected arguments: serve|read ADDRESS:PORT".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7471").into())
}

/// Returns version `number` of the record.
fn encode(number: u64) -> [u8; RECORD_LEN] {
    let mut record = [0; RECORD_LEN];
    for word in record[8..].chunks_exact_mut(8) {
        word.copy_from_slice(&number.to_le_bytes());
    }
    let sum = checksum(&record[8..]);
    record[..8].copy_from_slice(&sum.to_le_bytes());
    record
}

/// Returns the number in a record, or `None` if the record is a mixture of two versions.
fn decode(record: &[u8]) -> Option<u64> {
    let (sum, numbers) = record.split_first_chunk()?;
    let is_valid = u64::from_le_bytes(*sum) == checksum(numbers);
    let number = numbers.first_chunk().filter(|_| is_valid)?;
    Some(u64::from_le_bytes(*number))
}

/// Returns the 64-bit FNV-1a hash.
fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Serves one client after the other.
fn serve(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address, 16)?;
    println!("listening on {}", listener.local_addr());
    loop {
        let Some(request) = listener.next_request(None)? else {
            continue;
        };
        let peer = request.peer_addr();
        if let Err(error) = serve_client(request) {
            eprintln!("{peer}: {error}"); // a failed client must not stop the server
        }
    }
}

/// Keeps changing the record until the client disconnects.
fn serve_client(request: ConnectRequest) -> Result<()> {
    let context = request.context()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(CqOptions::default())?;
    let region = pd.shared(RECORD_LEN, AccessFlags::REMOTE_READ)?;
    region.write(0, &encode(0))?;
    let ready = request
        .access(AccessFlags::REMOTE_READ)
        .with_qp(pd.create_qp(&cq, &cq, QpOptions::default())?)?;
    let key = region.remote().to_string();
    let params = ConnectParams::new().private_data(key.as_bytes());
    let mut connection = ready.accept(&params, TIMEOUT)?;
    for number in 1.. {
        // Pauses in the middle of each change, so that the client reads mixtures.
        let record = encode(number);
        let (first, second) = record.split_at(RECORD_LEN / 2);
        region.write(0, first)?;
        sleep(PAUSE);
        region.write(RECORD_LEN / 2, second)?;
        sleep(PAUSE);
        if connection.try_event()?.is_some() {
            println!(
                "{}: disconnected after {number} changes",
                connection.peer_addr()
            );
            break;
        }
    }
    Ok(())
}

fn read(address: SocketAddr) -> Result<()> {
    let route = Resolver::new(address).timeout(TIMEOUT).resolve()?;
    let context = route.context()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let ready = route.with_qp(pd.create_qp(&cq, &cq, QpOptions::default())?)?;
    let mut connection = ready.connect(&ConnectParams::default(), TIMEOUT)?;
    let key = String::from_utf8_lossy(connection.private_data()).into_owned();
    let remote: RemoteMemory = key.trim_end_matches('\0').parse()?;

    let (mut mixtures, mut last) = (0, 0);
    let mut copy = [0; RECORD_LEN];
    // The region is the destination of all READs. On iWARP it must be writable for the peer.
    let local = pd.shared(RECORD_LEN, AccessFlags::REMOTE_WRITE)?;
    let held = connection.qp_mut().hold(&local)?;
    for _ in 0..READS {
        sleep(PAUSE);
        connection.qp_mut().post_send(wr::read(held, remote))?;
        wait(&mut cq, &mut connection)?;
        local.read(0, &mut copy)?;
        match decode(&copy) {
            Some(number) if number < last => {
                return Err(format!("read {number} after {last}: the record went back").into());
            }
            Some(number) => last = number,
            None => mixtures += 1, // a program would repeat the READ
        }
    }
    println!("{READS} reads, {mixtures} mixtures of two versions, last number {last}");
    Ok(())
}

/// Waits for the completion of the only request in flight.
fn wait(cq: &mut CompletionQueue, connection: &mut Connection) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < TIMEOUT {
        if let Some(completion) = cq.poll()?.next() {
            return Ok(connection.qp_mut().retire(completion)?.check()?);
        }
        if let Some(event) = connection.try_event()? {
            return Err(format!("{}: {}", connection.peer_addr(), event.event_type).into());
        }
        std::thread::yield_now(); // the peer may need this processor
    }
    Err(format!("no request completed in {} s", TIMEOUT.as_secs()).into())
}
