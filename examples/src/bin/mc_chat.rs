//! A chat in a multicast group: who sends is heard by all who listen.
//!
//! `mc_chat -m 239.1.2.3 -b 10.99.0.1` listens; `mc_chat -m 239.1.2.3 -b 10.99.0.1 -s hello`
//! speaks. Either works with librdmacm's own `mckey` at the other end.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::Parser;
use examples::Result;
use examples::datagrams::{Datagrams, PATIENCE};
use rdmacm::Resolver;
use rdmacm::datagram::multicast::JoinAs;

/// Chat in a multicast group
#[derive(Debug, Parser)]
struct Args {
    /// The group
    #[arg(short, value_name = "ADDRESS")]
    multicast: IpAddr,
    /// Address of the network interface
    #[arg(short, value_name = "ADDRESS")]
    bind: Option<IpAddr>,
    /// Speak, rather than listen
    #[arg(short)]
    speak: bool,
    /// Datagrams to send, or to hear
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
    examples::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let mut resolver = Resolver::new(SocketAddr::new(args.multicast, 0)).timeout(PATIENCE);
    if let Some(from) = args.bind {
        resolver = resolver.source(from);
    }
    let group = resolver.join(JoinAs::FULL_MEMBER)?;
    let mut datagrams = Datagrams::new(&group.context()?, args.size.into(), args.count)?;
    group.start_qp(&mut datagrams.qp)?;
    println!("joined {} over {}", group.gid(), group.device_name());
    if args.speak {
        let all = group.destination(&mut datagrams.qp)?;
        for number in 1..=args.count {
            datagrams.send(&format!("{} {number}", args.text), args.size.into(), all)?;
        }
        return datagrams.flush();
    }
    datagrams.refill()?;
    group.attach(&mut datagrams.qp)?;
    println!("listening");
    for _ in 0..args.count {
        println!("{}", datagrams.receive()?.text());
    }
    group.detach(&mut datagrams.qp)?;
    Ok(group.leave()?)
}
