//! An echo server for many clients on one thread, and the clients: awaiting instead of threads.
//!
//! `async_server serve 10.99.0.1:7471`, then `async_server load 10.99.0.1:7471 --clients 64
//! --rounds 100`.

#![forbid(unsafe_code)]

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};
use examples::Result;
use rdmacm::{AsyncListener, AsyncMessenger, ConnectRequest, Listener, MessengerOptions};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// How long an end waits for the other.
const PATIENCE: Duration = Duration::from_secs(30);

/// Many clients on one thread
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Send back what comes
    Serve {
        /// Where to listen
        address: SocketAddr,
        /// Clients to serve before it ends; 0 for ever
        #[arg(short, long, value_name = "COUNT", default_value_t = 0)]
        clients: usize,
    },
    /// Be many clients at once
    Load {
        /// The server
        address: SocketAddr,
        /// How many
        #[arg(short, long, value_name = "COUNT", default_value_t = 16)]
        clients: usize,
        /// Messages that each sends and gets back
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

/// What a task ends with: how many messages it has seen, or why it ended early.
type Outcome = std::result::Result<u64, String>;

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
    let mut tasks: JoinSet<Outcome> = JoinSet::new();
    let mut taken = 0;
    let mut messages = 0;
    while clients == 0 || taken < clients || !tasks.is_empty() {
        tokio::select! {
            request = listener.accept(), if clients == 0 || taken < clients => {
                let request = request?;
                taken += 1;
                tasks.spawn(async move { echo(request).await.map_err(|error| error.to_string()) });
            }
            Some(ended) = tasks.join_next() => match ended? {
                Ok(count) => messages += count,
                Err(error) => eprintln!("{error}"),
            },
        }
    }
    println!("{taken} clients, {messages} messages");
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
    let begun = Instant::now();
    let mut tasks: JoinSet<Outcome> = JoinSet::new();
    for number in 0..clients {
        tasks.spawn(async move {
            match timeout(PATIENCE, ask(address, number, rounds)).await {
                Ok(outcome) => outcome.map_err(|error| format!("client {number}: {error}")),
                Err(_) => Err(format!(
                    "client {number}: no answer for {} s",
                    PATIENCE.as_secs()
                )),
            }
        });
    }
    let mut messages = 0;
    while let Some(ended) = tasks.join_next().await {
        messages += ended??;
    }
    println!(
        "{clients} clients, {messages} messages there and back in {:.1?}",
        begun.elapsed()
    );
    Ok(())
}

async fn ask(
    address: SocketAddr,
    number: usize,
    rounds: u64,
) -> std::result::Result<u64, rdmacm::ConnectError> {
    let mut server = AsyncMessenger::connect(address, &options()).await?;
    for round in 0..rounds {
        let question = format!("{round} of {number}");
        server.send(question.as_bytes()).await?;
        let answer = server.recv().await?;
        if answer.as_deref() != Some(question.as_bytes()) {
            let what = format!(
                "{:?} for {question:?}",
                answer.as_deref().map(String::from_utf8_lossy)
            );
            return Err(ibverbs::Error::new(ibverbs::ErrorKind::Disconnected, "echo", what).into());
        }
    }
    Ok(rounds)
}
