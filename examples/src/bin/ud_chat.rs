//! Exchanges unreliable datagrams with a service that the connection manager resolves by IP
//! address.
//!
//! `ud_chat -b 10.99.0.1` is the server; `ud_chat -s 10.99.0.1 hello` is the client. Both
//! interoperate with `udaddy` of librdmacm: the client sends a number of datagrams, the server
//! sends as many back, and each carries the number of its queue pair as immediate data.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use examples::Result;
use examples::datagrams::{DatagramSocket, TIMEOUT};
use ibverbs::Qkey;
use rdmacm::{ListenOptions, Resolver};

/// The Q_Key of port space UDP (`RDMA_UDP_QKEY` in `rdma/rdma_cma.h`).
const UDP_QKEY: Qkey = Qkey(0x0123_4567);

/// Chat over datagrams: a client if the address of a server is given, else a server
#[derive(Debug, Parser)]
struct Args {
    /// IP address of the server
    #[arg(short, value_name = "ADDRESS")]
    server: Option<IpAddr>,
    /// Local IP address
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Port of the service
    #[arg(short = 'P', value_name = "PORT", default_value_t = 7174)]
    port: u16,
    /// Number of datagrams in each direction
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1024))]
    count: u32,
    /// Datagram size in bytes
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1024))]
    size: u16,
    /// Text to send
    #[arg(default_value = "hello")]
    text: String,
}

fn main() -> ExitCode {
    let args = Args::parse();
    examples::exit(match args.server {
        Some(server) => run_client(&args, server),
        None => serve(&args),
    })
}

fn run_client(args: &Args, server: IpAddr) -> Result<()> {
    let mut resolver = Resolver::new(SocketAddr::new(server, args.port)).timeout(TIMEOUT);
    if let Some(source) = args.bind {
        resolver = resolver.source(source);
    }
    let route = resolver.resolve_datagram()?;
    let mut socket = DatagramSocket::new(&route.context()?, args.size.into(), args.count)?;
    route.start_qp(&mut socket.qp)?;
    socket.refill()?;
    let service = route.query(b"", TIMEOUT)?;
    let destination = service.address.destination(&mut socket.qp)?;
    for number in 1..=args.count {
        let text = format!("{} {number}", args.text);
        socket.send(&text, args.size.into(), destination)?;
    }
    for _ in 0..args.count {
        println!("{}", socket.receive()?.text());
    }
    Ok(())
}

fn serve(args: &Args) -> Result<()> {
    let local = args.bind.unwrap_or(IpAddr::from([0, 0, 0, 0]));
    let listener = ListenOptions::new().bind_datagram(SocketAddr::new(local, args.port))?;
    let request = listener
        .accept(None)?
        .ok_or("accept a client: no request arrived")?;
    let port_num = request.port_num();
    let mut socket = DatagramSocket::new(&request.context()?, args.size.into(), args.count)?;
    request.start_qp(&mut socket.qp)?;
    socket.refill()?;
    request.accept(&socket.qp, b"")?;
    let mut replies = Vec::new();
    for _ in 0..args.count {
        let datagram = socket.receive()?;
        println!("{}", datagram.text());
        let destination = socket.reply_to(&datagram, port_num, UDP_QKEY)?;
        replies.push((datagram.text().to_uppercase(), destination));
    }
    // Like udaddy, receive all datagrams before the first reply.
    for (text, destination) in replies {
        socket.send(&text, args.size.into(), destination)?;
    }
    socket.flush()
}
