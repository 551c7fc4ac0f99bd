//! Options of tests over sockets.

use base::units::Size;
use clap::Args;
use measure::spec::Sockets;

use super::per_end::{End, PerEnd, value};

const SOCKETS: &str = "Tests over sockets";

/// Options of tests over sockets.
#[derive(Clone, Debug, Default, Args)]
pub struct SocketOptions {
    /// Port of the server's end of the data connection; several streams use the ports from this one
    /// on [default: for TCP and UDP --port, which all streams use; for SCTP and RDS any free port]
    #[arg(long, value_name = "PORT", help_heading = SOCKETS)]
    pub ip_port: Option<u16>,
    /// Number of parallel streams in each direction, each with a thread at both ends (bandwidth
    /// tests) [default: 1]
    #[arg(long, value_name = "N", help_heading = SOCKETS)]
    pub parallel: Option<u32>,
    /// Send in both directions at the same time (bandwidth tests)
    #[arg(long, help_heading = SOCKETS)]
    pub bidir: bool,
    /// Size of the socket buffers in bytes [default: chosen by the kernel; for SCTP the maximum
    /// that the kernel allows, up to 4 MiB]
    #[arg(long, value_name = "SIZE", help_heading = SOCKETS)]
    pub sock_buf_size: Vec<PerEnd<Size>>,
}

impl SocketOptions {
    /// Returns the socket settings that these options select.
    pub fn to_sockets(&self) -> Sockets {
        let bytes = |end| {
            let size = value(&self.sock_buf_size, end);
            size.map_or(0, |size| u32::try_from(size.0).unwrap_or(u32::MAX))
        };
        Sockets {
            port: self.ip_port.unwrap_or(0),
            parallel: self.parallel.unwrap_or(1),
            bidirectional: self.bidir,
            client_buffers: bytes(End::Local),
            server_buffers: bytes(End::Remote),
        }
    }
}
