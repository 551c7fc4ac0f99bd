//! An echo server and its client, connected through the connection manager by IP address. It runs
//! on InfiniBand, RoCE and iWARP.
//!
//! `echo 10.99.0.1:7471` serves clients one after the other. `echo 10.99.0.1:7471 some words` sends
//! each word and prints the reply.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use examples::Result;
use rdmacm::{Listener, Messenger, MessengerOptions};

/// Time to wait for the peer in each operation.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Echo over RDMA: a client if words are given, else a server
#[derive(Debug, Parser)]
struct Args {
    /// Address and port of the server; a server listens on them
    address: SocketAddr,
    /// Words to send
    words: Vec<String>,
    /// Number of clients to serve before exiting; 0 means no limit
    #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
    clients: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    examples::exit(if args.words.is_empty() {
        serve(&args)
    } else {
        run_client(&args)
    })
}

fn serve(args: &Args) -> Result<()> {
    let listener = Listener::bind(args.address, 16)?;
    println!("listening on {}", listener.local_addr());
    let mut served = 0;
    while args.clients == 0 || served < args.clients {
        let Some(request) = listener.accept(None)? else {
            continue;
        };
        let peer = request.peer_addr();
        // One failed client must not stop the server.
        match echo(Messenger::accept(
            request,
            &MessengerOptions::default(),
            TIMEOUT,
        )) {
            Ok(count) => println!("{peer}: {count} messages"),
            Err(error) => eprintln!("{peer}: {error}"),
        }
        served += 1;
    }
    Ok(())
}

fn echo(client: std::result::Result<Messenger, rdmacm::ConnectError>) -> Result<u64> {
    let mut client = client?;
    let mut count = 0;
    while let Some(message) = client.recv(TIMEOUT)? {
        client.send(&message, TIMEOUT)?;
        count += 1;
    }
    Ok(count)
}

fn run_client(args: &Args) -> Result<()> {
    let mut server = Messenger::connect(args.address, &MessengerOptions::default(), TIMEOUT)?;
    for word in &args.words {
        server.send(word.as_bytes(), TIMEOUT)?;
        let reply = server
            .recv(TIMEOUT)?
            .ok_or("receive the reply: the server disconnected")?;
        println!("{}", String::from_utf8_lossy(&reply));
    }
    Ok(())
}
