//! rping: the server reads a client's memory and writes it back, with the options and on the wire
//! as librdmacm's own `rping`.
//!
//! `rping -s -a 10.99.0.1 -v` and `rping -c -a 10.99.0.1 -v -C 3`, either with the real one at the
//! other end.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::{ArgGroup, Parser};
use examples::rping::{Settings, client, server};

/// RDMA ping-pong: the server reads what a client offers and writes it back
#[derive(Debug, Parser)]
#[command(disable_version_flag = true, group(ArgGroup::new("role").required(true).args(["server", "client"])))]
#[allow(clippy::struct_excessive_bools, reason = "the options of the real one")]
struct Args {
    /// Be the server
    #[arg(short)]
    server: bool,
    /// Be the client
    #[arg(short)]
    client: bool,
    /// Address to listen on, or of the server
    #[arg(short, value_name = "ADDRESS", default_value = "0.0.0.0")]
    address: IpAddr,
    /// Port of the server
    #[arg(short, value_name = "PORT", default_value_t = 7174)]
    port: u16,
    /// Address to come from, as a client
    #[arg(short = 'I', value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Pings to send; 0 for ever
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 0)]
    count: u64,
    /// Bytes of a ping
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    size: u32,
    /// Print the data
    #[arg(short)]
    verbose: bool,
    /// Check the data
    #[arg(short = 'V')]
    validate: bool,
    /// As a server, go on after the first client
    #[arg(short = 'P')]
    persistent: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let settings = Settings {
        address: SocketAddr::new(args.address, args.port),
        from: args.from,
        count: args.count,
        size: args.size as usize,
        verbose: args.verbose,
        validate: args.validate,
        persistent: args.persistent,
    };
    examples::exit(if args.server {
        server::run(&settings)
    } else {
        client::run(&settings)
    })
}
