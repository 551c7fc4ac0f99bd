//! An echo server and its client with `Messenger`, which creates the queues and buffers of its
//! connection. It runs on InfiniBand, RoCE and iWARP.
//!
//! ```toml
//! [dependencies]
//! rdma-messenger = { git = "https://github.com/rdma-rs/rdma-rs" }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`), always
//! with the address of the server:
//!
//! ```text
//! host1$ echo serve 10.0.0.1:7471           $ echo serve 10.0.0.1:7471 &
//! host2$ echo send 10.0.0.1:7471 one two    $ echo send 10.0.0.1:7471 one two
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use messenger::{Messenger, MessengerOptions};
use rdmacm::{ConnectRequest, Listener};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time to wait for the peer in each operation.
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
    match &args[..] {
        ["serve", address] => serve(parse(address)?),
        ["send", address, words @ ..] if !words.is_empty() => send(parse(address)?, words),
        _ => Err("expected arguments: serve ADDRESS:PORT, or send ADDRESS:PORT WORD…".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7471").into())
}

/// Serves clients one after the other.
fn serve(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address, 16)?;
    println!("listening on {}", listener.local_addr());
    loop {
        let Some(request) = listener.next_request(None)? else {
            continue;
        };
        let peer = request.peer_addr();
        // A failed client must not stop the server.
        match echo(request) {
            Ok(count) => println!("{peer}: {count} messages"),
            Err(error) => eprintln!("{peer}: {error}"),
        }
    }
}

/// Echoes the messages of a client until it shuts down, and returns their number.
fn echo(request: ConnectRequest) -> Result<u64> {
    let mut client = Messenger::accept(request, &MessengerOptions::default(), TIMEOUT)?;
    let mut count = 0;
    while let Some(message) = client.recv(TIMEOUT)? {
        client.send(&message, TIMEOUT)?;
        count += 1;
    }
    client.shutdown(TIMEOUT)?;
    Ok(count)
}

fn send(address: SocketAddr, words: &[&str]) -> Result<()> {
    let mut server = Messenger::connect(address, &MessengerOptions::default(), TIMEOUT)?;
    for word in words {
        server.send(word.as_bytes(), TIMEOUT)?;
        let reply = server.recv(TIMEOUT)?.ok_or("the server disconnected")?;
        println!("{}", String::from_utf8_lossy(&reply));
    }
    // Without it, the server cannot tell the end from a lost connection.
    server.shutdown(TIMEOUT)?;
    server.recv(TIMEOUT)?; // the end of the server's messages
    Ok(())
}
