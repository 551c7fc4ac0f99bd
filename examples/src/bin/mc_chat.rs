//! Sends datagrams to a multicast group, or receives them.
//!
//! `mc_chat -m 239.1.2.3 -b 10.99.0.1` receives; `mc_chat -m 239.1.2.3 -b 10.99.0.1 -s hello`
//! sends. Both interoperate with `mckey` of librdmacm.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use examples::Result;
use examples::datagrams::{DatagramSocket, TIMEOUT};
use rdmacm::Resolver;
use rdmacm::datagram::multicast::JoinAs;

/// Chat over a multicast group
#[derive(Debug, Parser)]
struct Args {
    /// IP address of the multicast group
    #[arg(short, value_name = "ADDRESS")]
    multicast: IpAddr,
    /// IP address of the local network interface
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Send instead of receive
    #[arg(short)]
    send: bool,
    /// Number of datagrams to send or to receive
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
    examples::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let mut resolver = Resolver::new(SocketAddr::new(args.multicast, 0)).timeout(TIMEOUT);
    if let Some(source) = args.bind {
        resolver = resolver.source(source);
    }
    let group = resolver.join(JoinAs::FULL_MEMBER)?;
    let mut socket = DatagramSocket::new(&group.context()?, args.size.into(), args.count)?;
    group.start_qp(&mut socket.qp)?;
    println!("joined {} over {}", group.gid(), group.device_name());
    if args.send {
        let destination = group.destination(&mut socket.qp)?;
        for number in 1..=args.count {
            let text = format!("{} {number}", args.text);
            socket.send(&text, args.size.into(), destination)?;
        }
        return socket.flush();
    }
    socket.refill()?;
    group.attach(&mut socket.qp)?;
    println!("listening");
    for _ in 0..args.count {
        println!("{}", socket.receive()?.text());
    }
    group.detach(&mut socket.qp)?;
    Ok(group.leave()?)
}
