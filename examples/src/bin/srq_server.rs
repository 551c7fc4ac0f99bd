//! A server for many clients with one pool of buffers and one shared receive queue (SRQ): the
//! memory for receives does not grow with the number of clients. One task waits for connections,
//! messages and disconnects (tokio). It runs on InfiniBand, RoCE and iWARP.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs", features = ["tokio"] }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs", features = ["tokio"] }
//! tokio = { version = "1", features = ["macros", "rt", "time"] }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`), always
//! with the address of the server:
//!
//! ```text
//! host1$ srq_server serve 10.0.0.1:7471     $ srq_server serve 10.0.0.1:7471 &
//! host2$ srq_server load 10.0.0.1:7471 32   $ srq_server load 10.0.0.1:7471 32
//! ```

use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ibverbs::{
    AsyncCompletionQueue, Buf, Completion, CompletionQueue, Context, CqOptions, Direction, Pool,
    ProtectionDomain, QpOptions, Qpn, Rc, SharedReceiveQueue, SrqOptions, wr,
};
use rdmacm::{
    ConnectParams, ConnectRequest, Connection, EventChannel, IdKey, ListenOptions, Resolver,
};
use tokio::time::timeout;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const MAX_CLIENTS: usize = 64;
/// Number of buffers for all clients together. Each is posted as a receive or contains a reply.
const BUFFERS: u32 = 192;
/// Replies in flight to one client.
const REPLIES_PER_CLIENT: u32 = 8;
/// Maximum message size in bytes.
const SIZE: usize = 256;
/// Round trips of each client.
const ROUNDS: usize = 10;
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
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    match args[..] {
        ["serve", address] => runtime.block_on(serve(parse(address)?)),
        ["load", address, clients] => {
            let clients = clients
                .parse()
                .map_err(|_| format!("{clients}: expected a number of clients"))?;
            load(parse(address)?, clients)
        }
        _ => Err("expected arguments: serve ADDRESS:PORT, or load ADDRESS:PORT CLIENTS".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7471").into())
}

struct Server {
    pd: ProtectionDomain,
    srq: SharedReceiveQueue,
    pool: Pool,
    /// Capacity of the SRQ, which the device may grant larger than requested.
    max_recv_wr: usize,
    /// Connections by the number of their queue pair, which completions name.
    clients: HashMap<Qpn, Connection>,
}

async fn serve(address: SocketAddr) -> Result<()> {
    // Delivers the events of the listener and of all connections.
    let events = EventChannel::create()?;
    let listener = ListenOptions::new().channel(&events).bind(address)?;
    println!("listening on {}", listener.local_addr());
    // The first request shows on which device the clients arrive.
    let first = loop {
        events.next().await?;
        if let Some(request) = listener.try_request()? {
            break request;
        }
    };
    let context = first.context()?;
    let depth = BUFFERS + REPLIES_PER_CLIENT * u32::try_from(MAX_CLIENTS)?;
    let mut cq = AsyncCompletionQueue::new(&context, CqOptions::new().depth(depth))?;
    let mut server = Server::new(&context)?;
    let mut request = Some(first);
    loop {
        if let Some(request) = request.take() {
            let peer = request.peer_addr();
            // A client that fails must not stop the server.
            if let Err(error) = server.accept(request, &cq, &events).await {
                eprintln!("{peer}: {error}");
            }
        }
        tokio::select! {
            key = events.next() => match key? {
                key if key == listener.key() => request = listener.try_request()?,
                key => server.check_client(key)?,
            },
            completions = cq.completions() => {
                for completion in completions? {
                    server.handle(completion)?;
                }
            }
        }
    }
}

impl Server {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let srq = pd.create_srq(SrqOptions::new().max_wr(BUFFERS))?;
        let mut server = Self {
            pool: pd.pool(BUFFERS as usize, SIZE)?,
            max_recv_wr: srq.recv_slots_free(),
            clients: HashMap::new(),
            pd,
            srq,
        };
        server.post_receives()?;
        Ok(server)
    }

    /// Posts the free buffers as receives.
    fn post_receives(&mut self) -> Result<()> {
        while let Some(buf) = self.pool.take() {
            self.srq.post_recv(wr::recv(buf))?;
        }
        Ok(())
    }

    async fn accept(
        &mut self,
        request: ConnectRequest,
        cq: &CompletionQueue,
        events: &EventChannel,
    ) -> Result<()> {
        if self.clients.len() == MAX_CLIENTS {
            return Ok(request.reject(b"the server is full")?);
        }
        let options = QpOptions::new().max_send_wr(REPLIES_PER_CLIENT);
        let qp = self
            .pd
            .create_qp_with_srq::<Rc>(cq, cq, &self.srq, options)?;
        let accepting = request.with_qp(qp)?.start(&ConnectParams::default())?;
        let mut client = timeout(TIMEOUT, accepting).await??;
        client.migrate(events)?;
        self.clients.insert(client.qp().qp_num(), client);
        Ok(())
    }

    /// Removes a client that has disconnected.
    fn check_client(&mut self, key: IdKey) -> Result<()> {
        let client = self.clients.values_mut().find(|client| client.key() == key);
        let Some(client) = client else { return Ok(()) };
        let failed = client.try_event().is_err();
        if failed || client.is_disconnected() {
            let qp_num = client.qp().qp_num();
            self.clients.remove(&qp_num); // destroys the queue pair, and returns its buffers
            self.post_receives()?;
            let posted = self.max_recv_wr - self.srq.recv_slots_free();
            println!("clients: {}, receives posted: {posted}", self.clients.len());
        }
        Ok(())
    }

    /// Echoes a message, or retires a reply that was sent.
    fn handle(&mut self, completion: Completion<'_>) -> Result<()> {
        let client = self.clients.get_mut(&completion.qp_num());
        // A request is retired by the object that it was posted to: a receive by the SRQ.
        if completion.queue() == self.srq.id() {
            let retired = self.srq.retire(completion)?;
            if let (true, Some(client)) = (retired.is_success(), client) {
                let message = retired.into_buf().ok_or("a receive had no buffer")?;
                if let Err(rejected) = client.qp_mut().post_send(wr::send(message)) {
                    eprintln!("{}: {}", client.peer_addr(), rejected.error());
                    client.disconnect()?; // it has too many replies in flight
                }
            }
        } else if let Some(client) = client {
            client.qp_mut().retire(completion)?;
        } // else the queue pair was destroyed, which returned the buffer
        self.post_receives()
    }
}

/// Runs clients that are connected at the same time. Each sends a message and waits for its echo.
fn load(address: SocketAddr, clients: usize) -> Result<()> {
    let mut connections = Vec::new();
    for _ in 0..clients {
        let route = Resolver::new(address).timeout(TIMEOUT).resolve()?;
        let context = route.context()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(CqOptions::new().depth(8))?;
        let ready = route.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
        let connection = ready.connect(&ConnectParams::default(), TIMEOUT)?;
        connections.push((connection, cq));
    }
    for round in 0..ROUNDS {
        let text = format!("message {round}");
        for (connection, _) in &mut connections {
            let qp = connection.qp_mut();
            let mut message = qp.pd().buf(text.len())?;
            message.copy_from_slice(text.as_bytes());
            qp.post_recv(wr::recv(qp.pd().buf(SIZE)?))?;
            qp.post_send(wr::send(message))?;
        }
        for (connection, cq) in &mut connections {
            let reply = wait(connection, cq)?;
            if reply[..] != *text.as_bytes() {
                return Err(format!("the reply to {text:?} differs").into());
            }
        }
    }
    println!("{clients} clients, {} round trips", clients * ROUNDS);
    Ok(())
}

/// Waits for the next message of a connection.
fn wait(connection: &mut Connection, cq: &mut CompletionQueue) -> Result<Buf> {
    let deadline = Instant::now() + TIMEOUT;
    while Instant::now() < deadline {
        for completion in cq.poll()? {
            let retired = connection.qp_mut().retire(completion)?;
            retired.check()?;
            if retired.direction() == Direction::Recv {
                return Ok(retired.into_buf().ok_or("a receive had no buffer")?);
            }
        }
        if let Some(event) = connection.try_event()? {
            return Err(format!("{}: {}", connection.peer_addr(), event.event_type).into());
        }
        std::thread::yield_now();
    }
    Err(format!("no reply for {} s", TIMEOUT.as_secs()).into())
}
