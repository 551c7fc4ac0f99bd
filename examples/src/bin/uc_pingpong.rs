//! Ping-pong over an unreliable connection. Client and server interoperate with `ibv_uc_pingpong`.
//!
//! `uc_pingpong -d rxe0` is the server; `uc_pingpong -d rxe0 HOST` is its client.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use examples::pingpong::{Options, run};

/// Ping-pong over an unreliable connection: a client if HOST is given, else a server
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    examples::exit(run::<ibverbs::Uc>(&Args::parse().options))
}
