//! A message to and fro over an unreliable connection; speaks with the real `ibv_uc_pingpong`, in
//! either role.
//!
//! `uc_pingpong -d rxe0` waits; `uc_pingpong -d rxe0 HOST` connects to it.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use examples::pingpong::{Options, run};

/// A message to and fro over an unreliable connection: a server, or with HOST its client
#[derive(Debug, Parser)]
struct Args {
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    examples::exit(run::<ibverbs::Uc>(&Args::parse().options))
}
