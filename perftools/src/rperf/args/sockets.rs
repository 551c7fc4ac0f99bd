//! Options of tests over sockets.

use base::units::Size;
use clap::Args;
use measure::spec::Sockets;

const SOCKETS: &str = "Tests over sockets (-ip, -sb)";

/// Options of tests over sockets.
#[derive(Clone, Debug, Default, Args)]
pub struct SocketOptions {
    /// Port of the server's end of the data connection, for a firewall that opens only one;
    /// several streams use the ports from this one on [default: any free port]
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
    pub sock_buf_size: Option<Size>,
    /// Like --sock-buf-size, on this end only
    #[arg(long, value_name = "SIZE", help_heading = SOCKETS)]
    pub local_sock_buf_size: Option<Size>,
    /// Like --sock-buf-size, on the server only
    #[arg(long, value_name = "SIZE", help_heading = SOCKETS)]
    pub remote_sock_buf_size: Option<Size>,
}

impl SocketOptions {
    /// Returns `true` if any of these options is in use; all are options of a client.
    pub fn any_in_use(&self) -> bool {
        let sizes = [
            &self.sock_buf_size,
            &self.local_sock_buf_size,
            &self.remote_sock_buf_size,
        ];
        self.ip_port.is_some()
            || self.parallel.is_some()
            || self.bidir
            || sizes.iter().any(|size| size.is_some())
    }

    /// Returns the socket settings that these options select.
    pub fn to_sockets(&self) -> Sockets {
        let bytes = |one_end: Option<Size>| {
            one_end
                .or(self.sock_buf_size)
                .map_or(0, |s| u32::try_from(s.0).unwrap_or(u32::MAX))
        };
        Sockets {
            port: self.ip_port.unwrap_or(0),
            parallel: self.parallel.unwrap_or(1),
            bidirectional: self.bidir,
            client_buffers: bytes(self.local_sock_buf_size),
            server_buffers: bytes(self.remote_sock_buf_size),
        }
    }
}
