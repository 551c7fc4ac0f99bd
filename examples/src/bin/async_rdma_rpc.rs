//! Remote procedure calls with SEND, and with WRITE and READ, on tokio: a port of the example `rpc`
//! of the crate `async-rdma`. docs/comparison.md compares both. Server and client run in one
//! process, on InfiniBand, RoCE or iWARP.
//!
//! ```toml
//! [dependencies]
//! rdma-messenger = { git = "https://github.com/rdma-rs/rdma-rs", features = ["tokio"] }
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs", features = ["tokio"] }
//! tokio = { version = "1", features = ["macros", "rt", "time"] }
//! ```
//!
//! On one host, with the address of its RDMA interface:
//!
//! ```text
//! $ async_rdma_rpc 10.0.0.1:5555
//! ```

use std::net::SocketAddr;
use std::ops::Range;

use ibverbs::{AccessFlags, Held, RemoteMemory, SharedRegion, wr};
use messenger::{AsyncMessenger, Message, MessengerOptions};
use rdmacm::{AsyncListener, Listener};

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// Messages of the client: a request in the message itself, a demand for memory to write a request
/// into, and the news that it is written.
const CALL: u8 = 0;
const LEASE: u8 = 1;
const WRITTEN: u8 = 2;

#[derive(Clone, Copy, Debug)]
enum Request {
    Add { arg1: u32, arg2: u32 },
}

#[derive(Debug)]
enum Response {
    Add { res: u32 },
}

impl Request {
    const LEN: usize = 8;

    fn to_bytes(self) -> [u8; Self::LEN] {
        let Self::Add { arg1, arg2 } = self;
        (u64::from(arg1) << 32 | u64::from(arg2)).to_be_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let (arg1, arg2) = bytes.split_at_checked(4).ok_or("a short request")?;
        Ok(Self::Add {
            arg1: u32::from_be_bytes(arg1.try_into()?),
            arg2: u32::from_be_bytes(arg2.try_into()?),
        })
    }

    fn process(self) -> Response {
        let Self::Add { arg1, arg2 } = self;
        Response::Add {
            res: arg1.wrapping_add(arg2),
        }
    }
}

impl Response {
    const LEN: usize = 4;

    fn to_bytes(&self) -> [u8; Self::LEN] {
        let Self::Add { res } = self;
        res.to_be_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let res = u32::from_be_bytes(bytes.try_into()?);
        Ok(Self::Add { res })
    }
}

/// Memory for a request, and for its response behind it.
const REQUEST: Range<usize> = 0..Request::LEN;
const RESPONSE: Range<usize> = Request::LEN..Request::LEN + Response::LEN;

/// Serves one client until it shuts down.
async fn serve(listener: AsyncListener) -> Result<()> {
    let request = listener.next_request().await?;
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let options = MessengerOptions::new().access(access);
    let mut client = AsyncMessenger::accept(request, &options).await?;
    let memory = client.get_ref().pd().shared(RESPONSE.end, access)?;
    let key = |range| memory.slice(range).map(|part| part.remote().to_string());
    while let Some(message) = client.recv().await? {
        match &message[..] {
            [CALL, request @ ..] => {
                let response = Request::from_bytes(request)?.process();
                client.send(&response.to_bytes()).await?;
            }
            [LEASE] => {
                let key = key(REQUEST).ok_or("out of bounds")?;
                client.send(key.as_bytes()).await?;
            }
            [WRITTEN] => {
                let mut request = [0; Request::LEN];
                memory.read(REQUEST.start, &mut request)?;
                let response = Request::from_bytes(&request)?.process();
                memory.write(RESPONSE.start, &response.to_bytes())?;
                let key = key(RESPONSE).ok_or("out of bounds")?;
                client.send(key.as_bytes()).await?;
            }
            _ => return Err("an unknown message".into()),
        }
    }
    Ok(client.shutdown().await?)
}

struct Client {
    server: AsyncMessenger,
    /// Source of writes and destination of reads. On iWARP the latter is memory that the peer could
    /// write.
    memory: SharedRegion,
    held: Held<SharedRegion>,
}

impl Client {
    async fn connect(server: SocketAddr) -> Result<Self> {
        let options = MessengerOptions::new().requests(1);
        let mut server = AsyncMessenger::connect(server, &options).await?;
        let pd = server.get_ref().pd();
        let memory = pd.shared(RESPONSE.end, AccessFlags::REMOTE_WRITE)?;
        let held = server.with_qp(|qp| qp.hold(&memory))??;
        Ok(Self {
            server,
            memory,
            held,
        })
    }

    /// Sends the request, and receives the response.
    async fn call_by_send(&mut self, request: Request) -> Result<Response> {
        let message = [&[CALL], &request.to_bytes()[..]].concat();
        Response::from_bytes(&self.exchange(&message).await?)
    }

    /// Writes the request into memory of the server, and reads the response from there.
    async fn call_by_write(&mut self, request: Request) -> Result<Response> {
        let target = parse(&self.exchange(&[LEASE]).await?)?;
        self.memory.write(REQUEST.start, &request.to_bytes())?;
        let from = self.held.slice(REQUEST).ok_or("out of bounds")?;
        self.server
            .with_qp(|qp| qp.post_send(wr::write(from, target).tag(1)))??;
        self.server.completed().await?.check()?;

        let source = parse(&self.exchange(&[WRITTEN]).await?)?;
        let into = self.held.slice(RESPONSE).ok_or("out of bounds")?;
        self.server
            .with_qp(|qp| qp.post_send(wr::read(into, source).tag(1)))??;
        self.server.completed().await?.check()?;
        let mut response = [0; Response::LEN];
        self.memory.read(RESPONSE.start, &mut response)?;
        Response::from_bytes(&response)
    }

    /// Sends a message, and receives the answer.
    async fn exchange(&mut self, message: &[u8]) -> Result<Message> {
        self.server.send(message).await?;
        let answer = self.server.recv().await?;
        Ok(answer.ok_or("the server disconnected")?)
    }
}

fn parse(message: &[u8]) -> Result<RemoteMemory> {
    Ok(std::str::from_utf8(message)?.parse()?)
}

async fn run(address: SocketAddr) -> Result<()> {
    let listener = AsyncListener::new(Listener::bind(address, 1)?)?;
    let server = tokio::spawn(serve(listener));
    println!("rpc server started");
    let mut client = Client::connect(address).await?;
    let request = Request::Add { arg1: 1, arg2: 1 };
    println!("request: {request:?}");
    println!("response: {:?}", client.call_by_send(request).await?);
    let request = Request::Add { arg1: 2, arg2: 2 };
    println!("request: {request:?}");
    println!("response: {:?}", client.call_by_write(request).await?);
    client.server.shutdown().await?;
    client.server.recv().await?; // the server ends when this side has seen its end
    server.await?
}

fn main() {
    let result = || -> Result<()> {
        let address = std::env::args().nth(1);
        let address = address.ok_or("expected argument: ADDRESS:PORT")?.parse()?;
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        runtime.enable_all().build()?.block_on(run(address))
    };
    if let Err(error) = result() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}
