//! An asynchronous echo server that serves many clients on one thread (tokio), and clients that
//! load it. It runs on InfiniBand, RoCE and iWARP.
//!
//! ```toml
//! [dependencies]
//! rdma-messenger = { git = "https://github.com/rdma-rs/rdma-rs", features = ["tokio"] }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs", features = ["tokio"] }
//! tokio = { version = "1", features = ["macros", "rt", "time"] }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`), always
//! with the address of the server:
//!
//! ```text
//! host1$ async_echo serve 10.0.0.1:7471     $ async_echo serve 10.0.0.1:7471 &
//! host2$ async_echo load 10.0.0.1:7471 32   $ async_echo load 10.0.0.1:7471 32
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use messenger::{AsyncMessenger, MessengerOptions};
use rdmacm::{AsyncListener, ConnectRequest, Listener};
use tokio::task::JoinSet;
use tokio::time::timeout;

type Error = Box<dyn std::error::Error + Send + Sync>;
type Result<T> = std::result::Result<T, Error>;

/// Round trips per client.
const ROUNDS: u64 = 10;
/// Time that a client has for all of its messages.
const TIMEOUT: Duration = Duration::from_secs(30);

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
            runtime.block_on(load(parse(address)?, clients))
        }
        _ => Err("expected arguments: serve ADDRESS:PORT, or load ADDRESS:PORT CLIENTS".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7471").into())
}

async fn serve(address: SocketAddr) -> Result<()> {
    let listener = AsyncListener::new(Listener::bind(address, 1024)?)?;
    println!("listening on {}", listener.get_ref().local_addr());
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            request = listener.next_request() => {
                tasks.spawn(echo(request?));
            }
            Some(finished) = tasks.join_next() => match finished? {
                Ok((peer, count)) => println!("{peer}: {count} messages"),
                Err(error) => eprintln!("{error}"), // a failed client must not stop the server
            },
        }
    }
}

/// Echoes the messages of a client until it shuts down. Returns its address and the number of
/// messages.
async fn echo(request: ConnectRequest) -> Result<(SocketAddr, u64)> {
    let peer = request.peer_addr();
    let mut client = AsyncMessenger::accept(request, &MessengerOptions::default()).await?;
    let mut count = 0;
    while let Some(message) = client.recv().await? {
        client.send(&message).await?;
        count += 1;
    }
    client.shutdown().await?;
    Ok((peer, count))
}

/// Runs many clients concurrently.
async fn load(address: SocketAddr, clients: usize) -> Result<()> {
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for number in 0..clients {
        tasks.spawn(timeout(TIMEOUT, run_client(address, number)));
    }
    while let Some(finished) = tasks.join_next().await {
        finished?.map_err(|_| format!("a client had no reply in {} s", TIMEOUT.as_secs()))??;
    }
    let trips = clients as u64 * ROUNDS;
    println!(
        "{clients} clients, {trips} round trips in {:.1?}",
        start.elapsed()
    );
    Ok(())
}

async fn run_client(address: SocketAddr, number: usize) -> Result<()> {
    let mut server = AsyncMessenger::connect(address, &MessengerOptions::default()).await?;
    for round in 0..ROUNDS {
        let sent = format!("message {round} of client {number}");
        server.send(sent.as_bytes()).await?;
        let reply = server.recv().await?.ok_or("the server disconnected")?;
        if reply[..] != *sent.as_bytes() {
            return Err(format!(
                "sent {sent:?}, received {:?}",
                String::from_utf8_lossy(&reply)
            )
            .into());
        }
    }
    server.shutdown().await?;
    server.recv().await?; // the end of the server's messages
    Ok(())
}
