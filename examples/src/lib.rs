//! Small programs to copy from: the binaries. Here is what they share.
//!
//! - [`local`]: which device, port and GID to use;
//! - [`datagrams`]: a datagram queue pair with its receives;
//! - [`exchange`]: telling a peer over TCP where a queue pair is, as the `ibv_*_pingpong` programs
//!   do;
//! - [`wait`]: waiting for completions, by polling or asleep;
//! - [`pingpong`]: the options of those programs, and what they print;
//! - [`rping`]: the two ends of `rping`;
//! - [`table`]: the table of `kv`, and how a reader knows that an entry is whole.

#![forbid(unsafe_code)]

pub mod datagrams;
pub mod exchange;
pub mod local;
pub mod pingpong;
pub mod rping;
pub mod table;
pub mod wait;

use std::process::ExitCode;

/// Any error, as text for people.
pub type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Ends a program: prints the error in one line, if there is one.
///
/// A `main` that returns an error prints it as `Debug`, with quotes around text.
pub fn exit(result: Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How much memory of this process is resident, in bytes.
///
/// # Errors
/// Where there is no `/proc`.
pub fn resident_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("/proc/self/status has no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? * 1024)
}
