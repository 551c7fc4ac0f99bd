//! Socket options that send small messages immediately.

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::Socket;

use super::SocketKind;

// nix's macro contains the call of setsockopt(2), as for all of nix's own options.
sockopt_impl!(
    /// The option of SCTP that corresponds to `TCP_NODELAY`.
    SctpNodelay,
    SetOnly,
    libc::IPPROTO_SCTP,
    libc::SCTP_NODELAY,
    bool
);

/// Disables the delay of small messages until earlier ones are acknowledged (Nagle's algorithm).
pub(super) fn disable_send_delay(socket: &Socket, kind: SocketKind) {
    // An error is ignored: the test still works, only slower.
    match kind {
        SocketKind::Tcp => {
            let _ = socket.set_tcp_nodelay(true);
        }
        SocketKind::Sctp => {
            let _ = setsockopt(socket, SctpNodelay, &true);
        }
        SocketKind::Udp | SocketKind::Rds => {}
    }
}
