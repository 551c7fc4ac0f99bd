//! Small messages that do not wait for the acknowledgement of those before them.

use nix::libc;
use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use socket2::Socket;

use super::SocketKind;

// The call itself stands in nix's macro, as for all of its options.
sockopt_impl!(
    /// As `TCP_NODELAY`, of SCTP.
    SctpNodelay,
    SetOnly,
    libc::IPPROTO_SCTP,
    libc::SCTP_NODELAY,
    bool
);

/// Sends at once, where the protocol would wait.
pub(super) fn send_at_once(socket: &Socket, kind: SocketKind) {
    // A system that refuses only makes it slower.
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
