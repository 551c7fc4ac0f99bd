//! A chat by unreliable datagrams: a service is found by the connection manager, then either side
//! sends to the other.
//!
//! `ud_chat -b 10.99.0.1` serves; `ud_chat -s 10.99.0.1 hello` asks. Either works with librdmacm's
//! own `udaddy` at the other end: so many datagrams of one size there, as many back, each with the
//! number of the queue pair beside it.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use examples::Result;
use examples::datagrams::{Datagrams, PATIENCE};
use ibverbs::Qkey;
use rdmacm::{ListenOptions, Resolver};

/// The key of the port space UDP (`RDMA_UDP_QKEY` of `rdma/rdma_cma.h`).
const UDP_QKEY: Qkey = Qkey(0x0123_4567);

/// Chat by datagrams: with a server's address the client, else the server
#[derive(Debug, Parser)]
struct Args {
    /// The server
    #[arg(short, value_name = "ADDRESS")]
    server: Option<IpAddr>,
    /// Address to listen on, or to come from
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Port of the service
    #[arg(short = 'P', value_name = "PORT", default_value_t = 7174)]
    port: u16,
    /// Datagrams in either direction
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    count: u32,
    /// Bytes of a datagram
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1024))]
    size: u16,
    /// What to say
    #[arg(default_value = "hello")]
    text: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    examples::exit(match args.server {
        Some(server) => ask(&args, server),
        None => serve(&args),
    })
}

fn ask(args: &Args, server: IpAddr) -> Result<()> {
    let mut resolver = Resolver::new(SocketAddr::new(server, args.port)).timeout(PATIENCE);
    if let Some(from) = args.bind {
        resolver = resolver.source(from);
    }
    let route = resolver.resolve_datagram()?;
    let mut datagrams = Datagrams::new(&route.context()?, args.size.into(), args.count)?;
    route.start_qp(&mut datagrams.qp)?;
    datagrams.refill()?;
    let service = route.query(b"", PATIENCE)?;
    let to = service.address.destination(&mut datagrams.qp)?;
    for number in 1..=args.count {
        datagrams.send(&format!("{} {number}", args.text), args.size.into(), to)?;
    }
    for _ in 0..args.count {
        println!("{}", datagrams.receive()?.text());
    }
    Ok(())
}

fn serve(args: &Args) -> Result<()> {
    let any = IpAddr::from([0, 0, 0, 0]);
    let listener =
        ListenOptions::new().bind_datagram(SocketAddr::new(args.bind.unwrap_or(any), args.port))?;
    let request = listener.accept(None)?.ok_or("nobody came")?;
    let port_num = request.port_num();
    let mut datagrams = Datagrams::new(&request.context()?, args.size.into(), args.count)?;
    request.start_qp(&mut datagrams.qp)?;
    datagrams.refill()?;
    request.accept(&datagrams.qp, b"")?;
    let mut heard = Vec::new();
    for _ in 0..args.count {
        let datagram = datagrams.receive()?;
        println!("{}", datagram.text());
        let to = datagrams.reply_to(&datagram, port_num, UDP_QKEY)?;
        heard.push((datagram.text().to_uppercase(), to));
    }
    // As the real one: first all of theirs, then all of ours.
    for (text, to) in heard {
        datagrams.send(&text, args.size.into(), to)?;
    }
    datagrams.flush()
}
