//! `rperf`: see `rperf --help`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    perftools::run::main(std::env::args().skip(1))
}
