//! Code shared by the example programs in `src/bin`, which are meant to be copied from.
//!
//! - [`local`]: selects the device, port and GID;
//! - [`datagrams`]: a datagram queue pair with its receive buffers;
//! - [`exchange`]: exchanges queue pair addresses over TCP, in the format of the `ibv_*_pingpong`
//!   programs;
//! - [`wait`]: waits for completions, by polling or by sleeping;
//! - [`pingpong`]: options and output of the ping-pong programs;
//! - [`rping`]: client and server of `rping`;
//! - [`table`]: the hash table of `kv`, and the checksum that detects an entry read during an
//!   update.

#![forbid(unsafe_code)]

pub mod datagrams;
pub mod exchange;
pub mod local;
pub mod pingpong;
pub mod rping;
pub mod table;
pub mod wait;

use std::process::ExitCode;

/// The result of an example program; any error is reported as text.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Converts the result of a program to its exit code, and prints the error to stderr.
///
/// A `main` that returns the error itself would print it with `Debug`.
pub fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the resident memory of this process in bytes.
///
/// # Errors
/// `/proc/self/status` cannot be read or has no `VmRSS` line.
pub fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("/proc/self/status has no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
