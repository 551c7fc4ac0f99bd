//! A key-value store that clients read with one-sided RDMA reads, without the server's CPU.
//!
//! `kv -d rxe0 serve colour=blue shape=round` publishes a table, and keeps changing the value of
//! `clock`. `kv -d rxe0 get HOST colour clock` reads from it. The module `examples::table` explains
//! how a reader detects an entry that was read during a change.

#![forbid(unsafe_code)]

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use clap::{Parser, Subcommand};
use examples::Result;
use examples::exchange::{
    Role, accept, exchange, exchange_as_server, listen, receive_memory, send_memory,
};
use examples::local::Local;
use examples::table::{ENTRY_LEN, Entry, Reader, put};
use ibverbs::{AccessFlags, CqOptions, ProtectionDomain, QpOptions, Rc, SharedRegion};

/// Key-value store with lookups by RDMA read
#[derive(Debug, Parser)]
struct Args {
    /// RDMA device [default: the first one]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
    /// Index of the GID [default: chosen automatically if the port needs one]
    #[arg(short, long, value_name = "INDEX")]
    gid_idx: Option<u32>,
    /// TCP port of the server
    #[arg(short, long, default_value_t = 18516)]
    port: u16,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Publish a table to clients, one after the other
    Serve {
        /// Initial entries of the table
        #[arg(value_name = "KEY=VALUE")]
        entries: Vec<String>,
        /// Number of slots in the table
        #[arg(long = "places", value_name = "COUNT", default_value_t = 64)]
        slots: usize,
        /// Number of clients to serve before exiting [default: no limit]
        #[arg(long, value_name = "COUNT")]
        clients: Option<usize>,
        /// Interval between changes of `clock`, in milliseconds
        #[arg(long, value_name = "MS", default_value_t = 5)]
        every: u64,
        /// Pause in the middle of each change, in milliseconds, so that readers meet torn entries
        #[arg(long, value_name = "MS", default_value_t = 0)]
        pause: u64,
    },
    /// Look up keys
    Get {
        /// Host name or address of the server
        host: String,
        /// Keys to look up
        #[arg(required = true)]
        keys: Vec<String>,
        /// Number of lookups of each key
        #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1)]
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
            slots,
            clients,
            every,
            pause,
        } => {
            let pd = local.context.alloc_pd()?;
            let table = pd.shared(slots * ENTRY_LEN, AccessFlags::REMOTE_READ)?;
            for entry in entries {
                let (key, value) = entry
                    .split_once('=')
                    .ok_or_else(|| format!("parse the entry {entry:?}: expected KEY=VALUE"))?;
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
                    .unwrap_or_else(|error| eprintln!("serve a client: {error}"));
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
    /// Serves one client until it closes its TCP connection.
    ///
    /// The client reads the table through a queue pair, while this function keeps changing `clock`.
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
        let mut stream =
            exchange_as_server(stream, &[mine], |theirs| Ok(qp.connect(&path, &theirs[0])?))?;
        send_memory(&mut stream, self.table.remote())?;
        stream.set_read_timeout(Some(self.every.max(Duration::from_millis(1))))?;
        for count in 0.. {
            match stream.read(&mut [0]) {
                Ok(_) => break,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => return Err(error.into()),
            }
            // The value repeats one number, so that a mixture of two versions is visible.
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

/// Looks up keys and prints their values.
fn get(local: &Local, role: Role<'_>, keys: &[String], times: u32) -> Result<()> {
    let pd = local.context.alloc_pd()?;
    let cq = local.context.create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    let path = local.path(local.port.active_mtu, AccessFlags::empty());
    qp.init(&path)?;
    let mine = qp.endpoint(&path)?;
    let mut stream = exchange(role, &[mine], |theirs| Ok(qp.connect(&path, &theirs[0])?))?;
    let table = receive_memory(&mut stream)?;
    let mut reader = Reader::new(cq, qp, pd.buf(ENTRY_LEN)?, table);
    for _ in 0..times {
        for key in keys {
            match reader.look_up(key.as_bytes())? {
                Some(Entry { version, value, .. }) => {
                    println!(
                        "{key} = {} (version {version})",
                        String::from_utf8_lossy(&value)
                    );
                }
                None => println!("{key} not found"),
            }
        }
    }
    println!("{} reads, {} torn and repeated", reader.reads, reader.torn);
    Ok(())
}
