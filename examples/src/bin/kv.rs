//! A key-value lookup by one-sided reads: the server's processor takes no part in it.
//!
//! `kv -d rxe0 serve colour=blue shape=round` publishes a table and changes the value of `clock`
//! all the time; `kv -d rxe0 get HOST colour clock` reads from it. How a reader knows that an entry
//! is whole is said in `examples::table`.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::{Parser, Subcommand};
use examples::Result;
use examples::exchange::{Role, accept, as_server, exchange, listen, receive_memory, send_memory};
use examples::local::Local;
use examples::table::{ENTRY, Entry, Reader, put};
use ibverbs::{AccessFlags, CqOptions, ProtectionDomain, QpOptions, Rc, SharedRegion};

/// Key-value lookup by RDMA reads
#[derive(Debug, Parser)]
struct Args {
    /// RDMA device; the first one if not given
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
    /// Index of the GID; chosen if not given and needed
    #[arg(short, long, value_name = "INDEX")]
    gid_idx: Option<u32>,
    /// TCP port to meet at
    #[arg(short, long, default_value_t = 18516)]
    port: u16,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publishes a table, to one client after the other
    Serve {
        /// What is in the table: KEY=VALUE
        entries: Vec<String>,
        /// Places in the table
        #[arg(long, default_value_t = 64)]
        places: usize,
        /// Clients to serve before it ends; for ever if not given
        #[arg(long)]
        clients: Option<usize>,
        /// Milliseconds from one change of `clock` to the next
        #[arg(long, default_value_t = 5)]
        every: u64,
        /// Milliseconds to stop in the middle of a change, to be caught at it
        #[arg(long, default_value_t = 0)]
        pause: u64,
    },
    /// Looks keys up
    Get {
        /// The server
        host: String,
        /// The keys
        #[arg(required = true)]
        keys: Vec<String>,
        /// How often to look each up
        #[arg(short = 'n', long, default_value_t = 1)]
        times: u32,
    },
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let local = Local::open(args.ib_dev.as_deref(), 1, args.gid_idx)?;
    match &args.command {
        Command::Get { host, keys, times } => {
            get(&local, Role::Client(host, args.port), keys, *times)
        }
        Command::Serve {
            entries,
            places,
            clients,
            every,
            pause,
        } => {
            let pd = local.context.alloc_pd()?;
            let table = pd.shared(places * ENTRY, AccessFlags::REMOTE_READ)?;
            for entry in entries {
                let (key, value) = entry
                    .split_once('=')
                    .ok_or_else(|| format!("{entry} is not KEY=VALUE"))?;
                put(&table, key.as_bytes(), value.as_bytes(), || {})?;
            }
            let [every, pause] = [*every, *pause].map(Duration::from_millis);
            let server = Server {
                local,
                pd,
                table,
                every,
                pause,
            };
            let listener = listen(args.port)?;
            for _ in 0..clients.unwrap_or(usize::MAX) {
                server
                    .serve(accept(&listener)?)
                    .unwrap_or_else(|error| eprintln!("a client: {error}"));
            }
            Ok(())
        }
    }
}

struct Server {
    local: Local,
    pd: ProtectionDomain,
    table: SharedRegion,
    every: Duration,
    pause: Duration,
}

impl Server {
    /// Keeps a queue pair for the client, through which it reads, until it closes its TCP
    /// connection.
    fn serve(&self, stream: TcpStream) -> Result<()> {
        let cq = self.local.context.create_cq(CqOptions {
            depth: 1,
            ..CqOptions::default()
        })?;
        let mut qp = self.pd.create_qp::<Rc>(
            &cq,
            &cq,
            QpOptions {
                max_send_wr: 1,
                max_recv_wr: 1,
                ..QpOptions::default()
            },
        )?;
        let path = self
            .local
            .path(self.local.port.active_mtu, AccessFlags::REMOTE_READ);
        qp.init(&path)?;
        let mine = qp.endpoint(&path)?;
        let mut stream = as_server(stream, &[mine], |theirs| Ok(qp.connect(&path, &theirs[0])?))?;
        send_memory(&mut stream, self.table.remote())?;
        stream.set_read_timeout(Some(self.every.max(Duration::from_millis(1))))?;
        for count in 0.. {
            match stream.read(&mut [0]) {
                Ok(_) => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            // The same number many times: a reader would see if it were of two times.
            put(
                &self.table,
                b"clock",
                format!("{count:07} ").repeat(20).as_bytes(),
                || sleep(self.pause),
            )?;
        }
        Ok(())
    }
}

/// Looks keys up, and prints what is there.
fn get(local: &Local, role: Role<'_>, keys: &[String], times: u32) -> Result<()> {
    let pd = local.context.alloc_pd()?;
    let cq = local.context.create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    let path = local.path(local.port.active_mtu, AccessFlags::empty());
    qp.init(&path)?;
    let mine = qp.endpoint(&path)?;
    let mut stream = exchange(role, &[mine], |theirs| Ok(qp.connect(&path, &theirs[0])?))?;
    let table = receive_memory(&mut stream)?;
    let mut reader = Reader::new(cq, qp, pd.buf(ENTRY)?, table);
    for _ in 0..times {
        for key in keys {
            match reader.look_up(key.as_bytes())? {
                Some(Entry { version, value, .. }) => {
                    println!(
                        "{key} = {} (version {version})",
                        String::from_utf8_lossy(&value)
                    );
                }
                None => println!("{key} is not there"),
            }
        }
    }
    println!(
        "{} reads, {} of them torn and read again",
        reader.reads, reader.torn
    );
    Ok(())
}
