//! Ports of the servers of this project.

use ibverbs::Errno;
use nix::libc;

/// TCP port of rperf's control protocol, the same as that of qperf.
pub const CONTROL: u16 = 19765;
/// Port of connections of ribping (`PS_TCP`), the same as that of rping.
pub const RPING: u16 = 7174;

/// Returns `true` if another socket or program of this host has the port.
pub fn is_taken(error: &ibverbs::Error) -> bool {
    error.errno() == Some(Errno(libc::EADDRINUSE))
}
