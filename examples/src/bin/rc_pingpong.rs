//! A message to and fro over a reliable connection; speaks with the real `ibv_rc_pingpong`, in
//! either role.
//!
//! `rc_pingpong -d rxe0` waits; `rc_pingpong -d rxe0 HOST` connects to it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use examples::pingpong::{Options, run};

/// A message to and fro over a reliable connection: a server, or with HOST its client
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    examples::exit(run::<ibverbs::Rc>(&Args::parse().options))
}
