//! Ping-pong over a reliable connection. Client and server interoperate with `ibv_rc_pingpong`.
//!
//! `rc_pingpong -d rxe0` is the server; `rc_pingpong -d rxe0 HOST` is its client.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use examples::pingpong::{Options, run};

/// Ping-pong over a reliable connection: a client if HOST is given, else a server
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    examples::exit(run::<ibverbs::Rc>(&Args::parse().options))
}
