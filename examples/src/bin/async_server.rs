//! An asynchronous echo server that serves many clients on one thread, and a load generator for it.
//!
//! Start the server with `async_server serve 10.99.0.1:7471`, then the clients with
//! `async_server load 10.99.0.1:7471 --clients 64 --rounds 100`.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use examples::Result;
use rdmacm::{AsyncListener, AsyncMessenger, ConnectRequest, Listener, MessengerOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time that a client has for all of its messages.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Asynchronous echo server, and clients that load it
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Echo the messages of all clients
    Serve {
        /// Address and port to listen on
        address: SocketAddr,
        /// Number of clients to serve before exiting; 0 means no limit
        #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
        clients: usize,
    },
    /// Run many clients concurrently
    Load {
        /// Address and port of the server
        address: SocketAddr,
        /// Number of clients
        #[arg(short, long, value_name = "COUNT", default_value_t = 16)]
        clients: usize,
        /// Round trips per client
        #[arg(short, long, value_name = "COUNT", default_value_t = 100)]
        rounds: u64,
    },
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse().role))
}

fn run(role: &Role) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        match *role {
            Role::Serve { address, clients } => serve(address, clients).await,
            Role::Load {
                address,
                clients,
                rounds,
            } => load(address, clients, rounds).await,
        }
    })
}

/// The number of messages that a task echoed, or the reason why it failed.
type TaskResult = std::result::Result<u64, String>;

fn options() -> MessengerOptions<'static> {
    MessengerOptions {
        max_len: 256,
        depth: 4,
        ..MessengerOptions::default()
    }
}

async fn serve(address: SocketAddr, clients: usize) -> Result<()> {
    let listener = AsyncListener::new(Listener::bind(address, 1024)?)?;
    println!("listening on {}", listener.get_ref().local_addr());
    let mut tasks: JoinSet<TaskResult> = JoinSet::new();
    let mut accepted = 0;
    let mut messages = 0;
    while clients == 0 || accepted < clients || !tasks.is_empty() {
        tokio::select! {
            request = listener.accept(), if clients == 0 || accepted < clients => {
                let request = request?;
                accepted += 1;
                tasks.spawn(async move { echo(request).await.map_err(|error| error.to_string()) });
            }
            Some(finished) = tasks.join_next() => match finished? {
                Ok(count) => messages += count,
                Err(error) => eprintln!("{error}"),
            },
        }
    }
    println!("{accepted} clients, {messages} messages");
    Ok(())
}

async fn echo(request: ConnectRequest) -> std::result::Result<u64, rdmacm::ConnectError> {
    let mut client = AsyncMessenger::accept(request, &options()).await?;
    let mut count = 0;
    while let Some(message) = client.recv().await? {
        client.send(&message).await?;
        count += 1;
    }
    Ok(count)
}

async fn load(address: SocketAddr, clients: usize, rounds: u64) -> Result<()> {
    let start = Instant::now();
    let mut tasks: JoinSet<TaskResult> = JoinSet::new();
    for number in 0..clients {
        tasks.spawn(async move {
            match timeout(TIMEOUT, run_client(address, number, rounds)).await {
                Ok(result) => result.map_err(|error| format!("client {number}: {error}")),
                Err(_) => Err(format!(
                    "client {number}: not finished after {} s",
                    TIMEOUT.as_secs()
                )),
            }
        });
    }
    let mut messages = 0;
    while let Some(finished) = tasks.join_next().await {
        messages += finished??;
    }
    println!(
        "{clients} clients, {messages} round trips in {:.1?}",
        start.elapsed()
    );
    Ok(())
}

async fn run_client(
    address: SocketAddr,
    number: usize,
    rounds: u64,
) -> std::result::Result<u64, rdmacm::ConnectError> {
    let mut server = AsyncMessenger::connect(address, &options()).await?;
    for round in 0..rounds {
        let sent = format!("message {round} of client {number}");
        server.send(sent.as_bytes()).await?;
        let echoed = server.recv().await?;
        if echoed.as_deref() != Some(sent.as_bytes()) {
            let cause = format!(
                "sent {sent:?}, received {:?}",
                echoed.as_deref().map(String::from_utf8_lossy)
            );
            return Err(
                ibverbs::Error::new(ibverbs::ErrorKind::Disconnected, "echo", cause).into(),
            );
        }
    }
    Ok(rounds)
}
