//! Options of tests over sockets.

use base::units::Size;
use clap::Args;

use super::option::{on, options, set};
use super::per_end::{End, PerEnd, value};
use super::sweep::Quantity;
use super::test_class::{SOCKETS as OVER_SOCKETS, STREAMS};

const SOCKETS: &str = "Tests over sockets";

options! {
/// Options of tests over sockets.
#[derive(Clone, Debug, Default, Args)]
pub struct SocketOptions {
    /// Port of the server's end of the data connection; several streams use the ports from this one
    /// on [default: for TCP and UDP --port, which all streams use; for SCTP and RDS any free port]
    #[arg(long, value_name = "PORT", help_heading = SOCKETS)]
    ip_port: Option<u16> =
        on(OVER_SOCKETS).names(&["-ip"]).former("-p").instead("the port of the server is --port (-lp)")
            .sample(&["3"]).sets(|o, spec| set(&mut spec.sockets.port, o.sockets.ip_port)),
    /// Number of parallel streams in each direction, each with a thread at both ends (bandwidth
    /// tests) [default: 1]
    #[arg(long, value_name = "N", help_heading = SOCKETS)]
    parallel: Option<u32> =
        on(STREAMS).sweep(Quantity::Number)
            .instead("for several queue pairs, use --qps or --threads").sample(&["3"])
            .sets(|o, spec| set(&mut spec.sockets.parallel, o.sockets.parallel)),
    /// Send in both directions at the same time (bandwidth tests)
    #[arg(long, help_heading = SOCKETS)]
    bidir: bool =
        on(STREAMS).instead("for both directions, run a test such as rc_bi_bw").sample(&[""])
            .sets(|o, spec| spec.sockets.bidirectional = o.sockets.bidir),
    /// Size of the socket buffers in bytes [default: chosen by the kernel; for SCTP the maximum
    /// that the kernel allows, up to 4 MiB]
    #[arg(long, value_name = "SIZE", help_heading = SOCKETS)]
    sock_buf_size: Vec<PerEnd<Size>> =
        on(OVER_SOCKETS).names(&["-sb"]).former("-S").sweep(Quantity::Number).sample(&["3"])
            .sets(|o, spec| {
                let bytes = |end| {
                    let size = value(&o.sockets.sock_buf_size, end);
                    size.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX))
                };
                set(&mut spec.sockets.client_buffers, bytes(End::Local));
                set(&mut spec.sockets.server_buffers, bytes(End::Remote));
            }),
}
}
