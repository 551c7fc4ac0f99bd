//! RDMA ping: the server reads data from the client's memory, then writes them back.
//!
//! `rping -s -a 10.99.0.1 -v` is the server, `rping -c -a 10.99.0.1 -v -C 3` the client. Options
//! and wire format are those of `rping` of librdmacm, and both roles interoperate with it.

#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;

use clap::{ArgGroup, Parser};
use examples::rping::{Settings, client, server};

/// RDMA ping: the server reads data from the client and writes them back
#[derive(Debug, Parser)]
#[command(disable_version_flag = true, group(ArgGroup::new("role").required(true).args(["server", "client"])))]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the options of rping of librdmacm"
)]
struct Args {
    /// Run as the server
    #[arg(short)]
    server: bool,
    /// Run as the client
    #[arg(short)]
    client: bool,
    /// Address of the server; the server listens on it
    #[arg(short, value_name = "ADDRESS", default_value = "0.0.0.0")]
    address: IpAddr,
    /// Port of the server
    #[arg(short, value_name = "PORT", default_value_t = 7174)]
    port: u16,
    /// Source address of the client
    #[arg(short = 'I', value_name = "ADDRESS")]
    source: Option<IpAddr>,
    /// Number of pings; 0 means no limit
    #[arg(short = 'C', value_name = "COUNT", default_value_t = 0)]
    count: u64,
    /// Size of a ping in bytes
    #[arg(short = 'S', value_name = "BYTES", default_value_t = 64, value_parser = clap::value_parser!(u32).range(16..=65_536))]
    size: u32,
    /// Print the data
    #[arg(short)]
    verbose: bool,
    /// Verify the data
    #[arg(short = 'V')]
    validate: bool,
    /// Keep serving after the first client
    #[arg(short = 'P')]
    persistent: bool,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let settings = Settings {
        address: SocketAddr::new(args.address, args.port),
        source: args.source,
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
