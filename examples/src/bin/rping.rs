//! RDMA ping over rdma_cm: the client offers memory in a message, the server reads data from it and
//! writes them back to other memory of the client. Both interoperate with `rping` of librdmacm. It
//! runs on InfiniBand, RoCE and iWARP.
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
//! host1$ rping serve 10.0.0.1:7174          $ rping serve 10.0.0.1:7174 &
//! host2$ rping ping 10.0.0.1:7174 5         $ rping ping 10.0.0.1:7174 5
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ibverbs::wr::{Operation, SendRequest};
use ibverbs::{
    AccessFlags, Buf, CompletionQueue, Context, CqOptions, Direction, Held, QpOptions, QueuePair,
    Rc, RemoteMemory, Retired, SharedRegion, wr,
};
use rdmacm::{ConnectParams, ConnectRequest, Connection, Listener, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Size of the client's data in bytes (the default of `rping`), and the maximum for the server.
const SIZE: usize = 64;
const MAX_SIZE: usize = 65_536;
/// Time to wait for the next message of the peer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The messages of `rping` have 16 bytes. Those of the server have no meaning.
const MESSAGE_LEN: usize = 16;
const CONTINUE: [u8; MESSAGE_LEN] = [0; MESSAGE_LEN];

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
        ["ping", address, count] => {
            let count = count
                .parse()
                .map_err(|_| format!("{count}: expected a number of pings"))?;
            ping(parse(address)?, count)
        }
        _ => Err("expected arguments: serve ADDRESS:PORT, or ping ADDRESS:PORT COUNT".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7174").into())
}

/// A connection with one receive posted, and the queue of its completions.
struct Peer {
    connection: Connection,
    cq: CompletionQueue,
}

/// One RDMA operation in flight.
const PARAMS: ConnectParams<'static> = ConnectParams::new()
    .responder_resources(1)
    .initiator_depth(1);
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE);

fn create_qp(context: &Context) -> Result<(QueuePair<Rc>, CompletionQueue)> {
    let cq = context.create_cq(CqOptions::default())?;
    let qp = context
        .alloc_pd()?
        .create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    Ok((qp, cq))
}

fn post_recv(qp: &mut QueuePair<Rc>) -> Result<()> {
    let buf = qp.pd().buf(MESSAGE_LEN)?;
    Ok(qp.post_recv(wr::recv(buf))?)
}

impl Peer {
    fn connect(address: SocketAddr) -> Result<Self> {
        let route = Resolver::new(address).timeout(TIMEOUT).resolve()?;
        let (qp, cq) = create_qp(&route.context()?)?;
        let mut ready = route.access(ACCESS).with_qp(qp)?;
        post_recv(ready.qp_mut())?; // posted before the peer can send
        let connection = ready.connect(&PARAMS, TIMEOUT)?;
        Ok(Self { connection, cq })
    }

    fn accept(request: ConnectRequest) -> Result<Self> {
        let (qp, cq) = create_qp(&request.context()?)?;
        let mut ready = request.access(ACCESS).with_qp(qp)?;
        post_recv(ready.qp_mut())?;
        let connection = ready.accept(&PARAMS, TIMEOUT)?;
        Ok(Self { connection, cq })
    }

    fn send(&mut self, message: [u8; MESSAGE_LEN]) -> Result<()> {
        let qp = self.connection.qp_mut();
        let mut buf = qp.pd().buf(MESSAGE_LEN)?;
        buf.copy_from_slice(&message);
        Ok(qp.post_send(wr::send(buf))?)
    }

    /// Receives a message, or returns `None` when the peer has disconnected.
    fn recv(&mut self) -> Result<Option<Buf>> {
        let Some(received) = self.wait(|request| request.direction() == Direction::Recv)? else {
            return Ok(None);
        };
        received.check()?;
        post_recv(self.connection.qp_mut())?;
        Ok(received.into_buf())
    }

    /// Posts a one-sided request and waits for its completion. The tag tells it from messages.
    fn complete<O: Operation<Rc, Held<SharedRegion>>>(
        &mut self,
        request: SendRequest<O, Held<SharedRegion>>,
    ) -> Result<()> {
        self.connection.qp_mut().post_send(request.tag(1))?;
        let completed = self.wait(|request| request.tag() == 1)?;
        Ok(completed.ok_or("the client disconnected")?.check()?)
    }

    /// Waits until an expected request completes, or the peer disconnects.
    fn wait(&mut self, is_expected: impl Fn(&Retired) -> bool) -> Result<Option<Retired>> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            for completion in self.cq.poll()? {
                let retired = self.connection.qp_mut().retire(completion)?;
                if is_expected(&retired) {
                    return Ok(Some(retired));
                }
            }
            self.connection.try_event()?;
            if self.connection.is_disconnected() {
                return Ok(None);
            }
            std::thread::yield_now();
        }
        Err(format!("no answer for {} s", TIMEOUT.as_secs()).into())
    }
}

fn ping(address: SocketAddr, count: u64) -> Result<()> {
    let mut server = Peer::connect(address)?;
    let pd = server.connection.qp().pd();
    let source = pd.shared(SIZE, AccessFlags::REMOTE_READ)?;
    let sink = pd.shared(SIZE, AccessFlags::REMOTE_WRITE)?;
    for number in 0..count {
        let data = ping_data(number);
        source.write(0, &data)?;
        for memory in [source.remote(), sink.remote()] {
            server.send(encode(memory))?;
            server.recv()?.ok_or("the server disconnected")?;
        }
        let mut returned = vec![0; SIZE];
        sink.read(0, &mut returned)?;
        println!("ping data: {}", printable(&returned));
        if returned != data {
            return Err(format!("ping {number}: sent {:?}", printable(&data)).into());
        }
    }
    Ok(())
}

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

fn serve_client(request: ConnectRequest) -> Result<()> {
    let mut client = Peer::accept(request)?;
    // iWARP requires remote write access to the destination of an RDMA READ.
    let pd = client.connection.qp().pd();
    let memory = pd.shared(MAX_SIZE, AccessFlags::REMOTE_WRITE)?;
    let held = client.connection.qp_mut().hold(&memory)?;
    while let Some(source) = recv_offer(&mut client)? {
        let len = usize::try_from(source.len)?;
        let slice = || held.slice(0..len).ok_or("the offered memory is too large");
        client.complete(wr::read(slice()?, source))?;
        let mut data = vec![0; len];
        memory.read(0, &mut data)?;
        println!("server ping data: {}", printable(&data));
        client.send(CONTINUE)?;

        let Some(sink) = recv_offer(&mut client)? else {
            break;
        };
        let sink = sink
            .slice(0..source.len)
            .ok_or("the memory for the reply is too small")?;
        client.complete(wr::write(slice()?, sink))?;
        client.send(CONTINUE)?;
    }
    Ok(())
}

/// Receives the memory that the client offers, or `None` when it has disconnected: address, key and
/// length in network byte order.
fn recv_offer(client: &mut Peer) -> Result<Option<RemoteMemory>> {
    let Some(message) = client.recv()? else {
        return Ok(None);
    };
    let message: [u8; MESSAGE_LEN] = message[..]
        .try_into()
        .map_err(|_| format!("received {} bytes, expected 16 bytes", message.len()))?;
    let [addr, rkey, len] = [&message[..8], &message[8..12], &message[12..]].map(|bytes| {
        bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    });
    Ok(Some(RemoteMemory {
        addr,
        len,
        rkey: u32::try_from(rkey)?,
    }))
}

fn encode(memory: RemoteMemory) -> [u8; MESSAGE_LEN] {
    let mut message = [0; MESSAGE_LEN];
    message[..8].copy_from_slice(&memory.addr.to_be_bytes());
    message[8..12].copy_from_slice(&memory.rkey.to_be_bytes());
    message[12..].copy_from_slice(&memory.len.to_be_bytes()[4..]);
    message
}

/// Returns the data that `rping` sends: the number of the ping, letters that are shifted by one
/// with each ping, and a zero.
fn ping_data(number: u64) -> Vec<u8> {
    let first = usize::try_from(number % 58).unwrap_or(0); // from A to z
    let mut data = format!("rdma-ping-{number}: ").into_bytes();
    let letters = SIZE.saturating_sub(data.len() + 1);
    data.extend((b'A'..=b'z').cycle().skip(first).take(letters));
    data.resize(SIZE, 0);
    data
}

/// Returns the bytes before the first zero as text.
fn printable(data: &[u8]) -> String {
    let end = data
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).into_owned()
}
