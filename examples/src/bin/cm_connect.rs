//! A client and a server that connect through the connection manager (rdma_cm) by IP address, step
//! by step:
//!
//! ```text
//! client   Resolver ── resolve ──▶ Route ── with_qp ──▶ ReadyRoute ── connect ──▶ Connection
//! server   Listener ── accept ──▶ ConnectRequest ── with_qp ──▶ ReadyRequest ── accept ──▶ Connection
//! ```
//!
//! It runs on InfiniBand, RoCE and iWARP. For plain messages the crate `rdma-messenger` does all
//! of this (`echo.rs`).
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
//! host1$ cm_connect serve 10.0.0.1:7471     $ cm_connect serve 10.0.0.1:7471 &
//! host2$ cm_connect hello 10.0.0.1:7471     $ cm_connect hello 10.0.0.1:7471
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use ibverbs::{
    Buf, CompletionQueue, Context, CqOptions, Direction, ProtectionDomain, QpOptions, QueuePair,
    Rc, wr,
};
use rdmacm::{ConnectParams, ConnectRequest, Connection, Listener, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum message size in bytes.
const SIZE: usize = 256;

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
        ["hello", address] => hello(parse(address)?),
        _ => Err("expected arguments: serve|hello ADDRESS:PORT".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7471").into())
}

/// The objects that a connection needs, on the device that the connection manager has found.
struct Resources {
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Resources {
    fn new(context: &Context) -> Result<Self> {
        Ok(Self {
            pd: context.alloc_pd()?,
            cq: context.create_cq(CqOptions::default())?,
        })
    }

    fn create_qp(&self) -> Result<QueuePair<Rc>> {
        Ok(self
            .pd
            .create_qp(&self.cq, &self.cq, QpOptions::default())?)
    }

    /// Posts a message.
    fn send(&self, connection: &mut Connection, text: &str) -> Result<()> {
        let mut message = self.pd.buf(text.len())?;
        message.copy_from_slice(text.as_bytes());
        Ok(connection.qp_mut().post_send(wr::send(message))?)
    }

    /// Waits until a send or a receive completes, and returns its buffer.
    fn wait(&mut self, connection: &mut Connection, direction: Direction) -> Result<Buf> {
        loop {
            for completion in self.cq.poll()? {
                let retired = connection.qp_mut().retire(completion)?;
                retired.check()?;
                if retired.direction() == direction {
                    return Ok(retired.into_buf().ok_or("the request had no buffer")?);
                }
            }
            // A peer that disconnects causes an event, but not always a completion.
            if let Some(event) = connection.try_event()? {
                return Err(format!("{}: {}", connection.peer_addr(), event.event_type).into());
            }
            std::thread::yield_now();
        }
    }
}

/// The active side: sends a message and prints the answer.
fn hello(server: SocketAddr) -> Result<()> {
    // 1. The address leads to a device and a route to the peer.
    let route = Resolver::new(server).timeout(TIMEOUT).resolve()?;
    println!(
        "route over {} port {}",
        route.device_name(),
        route.port_num()
    );

    // 2. The application creates a queue pair on that device. It gets the state INIT.
    let mut resources = Resources::new(&route.context()?)?;
    let mut ready = route.with_qp(resources.create_qp()?)?;

    // 3. Receives are posted before the peer can send.
    ready
        .qp_mut()
        .post_recv(wr::recv(resources.pd.buf(SIZE)?))?;

    // 4. The request carries private data to the peer's application, and its acceptance brings some
    //    back. The queue pair gets the state RTS.
    let params = ConnectParams::new().private_data(b"version 1");
    let mut connection = ready.connect(&params, TIMEOUT)?;
    println!(
        "connected, the server says {:?}",
        text(connection.private_data())
    );

    resources.send(&mut connection, "hello")?;
    let answer = resources.wait(&mut connection, Direction::Recv)?;
    println!("{}", text(&answer));

    // 5. Dropping the connection would also disconnect it.
    connection.disconnect()?;
    Ok(())
}

/// The passive side: accepts one client after the other.
fn serve(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address, 16)?;
    println!("listening on {}", listener.local_addr());
    loop {
        // 1. The request names the peer, the device and the peer's private data. Dropping it
        //    rejects it.
        let Some(request) = listener.next_request(None)? else {
            continue;
        };
        let peer = request.peer_addr();
        if !request.private_data().starts_with(b"version 1") {
            request.reject(b"expected version 1")?;
        } else if let Err(error) = answer(request) {
            eprintln!("{peer}: {error}"); // a failed client must not stop the server
        }
    }
}

fn answer(request: ConnectRequest) -> Result<()> {
    // 2. to 4. as on the active side, with `accept` instead of `connect`.
    let mut resources = Resources::new(&request.context()?)?;
    let mut ready = request.with_qp(resources.create_qp()?)?;
    ready
        .qp_mut()
        .post_recv(wr::recv(resources.pd.buf(SIZE)?))?;
    let params = ConnectParams::new().private_data(b"welcome");
    let mut connection = ready.accept(&params, TIMEOUT)?;

    let message = resources.wait(&mut connection, Direction::Recv)?;
    println!("{}: {}", connection.peer_addr(), text(&message));
    resources.send(&mut connection, &text(&message).to_uppercase())?;
    resources.wait(&mut connection, Direction::Send)?;

    // 5. The client disconnects first, when it has the answer.
    if connection.wait_event(Some(TIMEOUT))?.is_none() {
        eprintln!(
            "{}: did not disconnect in {} s",
            connection.peer_addr(),
            TIMEOUT.as_secs()
        );
    }
    Ok(())
}

/// Returns bytes as text, without the zeros that pad private data.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\0')
        .to_owned()
}
