//! The active side of a connection: resolving the address and the route, then connecting.

mod connecting;
mod external_qp;
mod handshake;
mod ready;
mod resolver;
mod resolving;
mod route;

use ibverbs::{QueuePair, Rc, Result};

pub use self::connecting::Connecting;
pub use self::external_qp::{ConnectPending, ConnectResponse};
use self::handshake::Handshake;
pub use self::ready::ReadyRoute;
pub use self::resolver::Resolver;
pub(crate) use self::resolving::Resolved;
pub use self::resolving::Resolving;
pub use self::route::Route;
use crate::id::{Id, Path, QpIdentity};
use crate::params::ConnectParams;

pub(crate) const VERB: &str = "rdma_connect";

/// A queue pair and its identifier, of which the kernel may hold both until the peer answers.
#[derive(Debug)]
pub(crate) struct Attempt {
    // Dropped in this order: the queue pair before its identifier.
    pub(crate) qp: QueuePair<Rc>,
    pub(crate) id: Id,
}

impl Attempt {
    pub(crate) fn request(&self, params: &ConnectParams<'_>, path: &Path) -> Result<()> {
        self.id.connect(params, QpIdentity::new(&self.qp), path)
    }

    /// Ends a wait without an answer. On iWARP the kernel holds the queue pair until the peer
    /// answers or its own timer (10 s with Soft-iWARP) is over, and destroying it waits for
    /// that: a thread does it.
    pub(crate) fn give_up(self, path: &Path) {
        if path.is_iwarp() {
            // Without a thread it is dropped here, and waits.
            let _ = handshake::in_thread(path, move || drop(self));
        }
    }
}
