//! The active side of a connection: resolving the address and the route, then connecting. The
//! datagram types build on it.

mod connecting;
mod external_qp;
mod handshake;
mod lookup;
mod oneshot;
mod ready;
mod resolver;
mod resolving;
mod route;
mod threads;

use ibverbs::{QueuePair, Rc, Result};

pub use self::connecting::Connecting;
pub use self::external_qp::{ConnectPending, ConnectResponse};
pub use self::lookup::{LookupPending, start_lookup, start_service_lookup};
pub use self::ready::ReadyRoute;
pub use self::resolver::Resolver;
pub(crate) use self::resolving::Resolved;
pub use self::resolving::Resolving;
pub use self::route::Route;
use crate::id::{Id, Path, QpIdentity};
use crate::params::ConnectParams;

pub(crate) const VERB: &str = "rdma_connect";

/// A queue pair and its identifier during connection setup. The kernel may hold both until the peer
/// answers.
#[derive(Debug)]
pub(crate) struct Attempt {
    // Drop order: the queue pair before its identifier.
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) id: Id,
}

impl Attempt {
    pub(crate) fn send_request(&self, params: &ConnectParams<'_>, path: &Path) -> Result<()> {
        self.id.connect(params, QpIdentity::new(&self.qp)?, path)
    }

    /// Abandons a connection that the peer has not answered. On iWARP the kernel holds the queue
    /// pair until the peer answers or a kernel timeout expires (10 s with Soft-iWARP). Destroying
    /// the queue pair blocks for that long, so a thread does it.
    pub(crate) fn abandon(self, path: &Path) {
        if path.is_iwarp() {
            // The application has no operation for the key anymore. Its events are dropped, and the
            // end of a blocking call does not show it again.
            drop(self.id.channel().unregister(self.id.addr()));
            // If no thread can be started, the closure is dropped here and blocks.
            let _ = handshake::spawn(path, move || drop(self));
        }
    }
}
