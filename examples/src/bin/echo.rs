//! An echo over reliable connections, the server and the client: connections by address, on
//! InfiniBand, RoCE and iWARP alike.
//!
//! `echo 10.99.0.1:7471` serves one client after the other; `echo 10.99.0.1:7471 some words` sends
//! each word and prints what comes back.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use examples::Result;
use rdmacm::{Listener, Messenger, MessengerOptions};

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(10);

/// Echo over RDMA: without words the server, with words the client
#[derive(Debug, Parser)]
struct Args {
    /// Where to listen, or the server: address and port
    address: SocketAddr,
    /// What to send
    words: Vec<String>,
    /// Clients to serve before it ends; 0 for ever
    #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
    clients: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    examples::exit(if args.words.is_empty() {
        serve(&args)
    } else {
        ask(&args)
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
        // A client that breaks off is no reason to end.
        match echo(Messenger::accept(
            request,
            &MessengerOptions::default(),
            PATIENCE,
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
    while let Some(message) = client.recv(PATIENCE)? {
        client.send(&message, PATIENCE)?;
        count += 1;
    }
    Ok(count)
}

fn ask(args: &Args) -> Result<()> {
    let mut server = Messenger::connect(args.address, &MessengerOptions::default(), PATIENCE)?;
    for word in &args.words {
        server.send(word.as_bytes(), PATIENCE)?;
        let answer = server.recv(PATIENCE)?.ok_or("the server went away")?;
        println!("{}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}
