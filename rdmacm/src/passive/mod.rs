//! The passive side of a connection: listening, then accepting or rejecting connect requests. The
//! datagram services build on it.

mod accepting;
mod external_qp;
mod listener;
mod listening_id;
mod options;
mod ready;
mod request;
#[cfg(feature = "tokio")]
mod tokio;

pub use self::accepting::Accepting;
pub use self::external_qp::EstablishPending;
pub use self::listener::Listener;
pub(crate) use self::listening_id::ListeningId;
pub use self::options::ListenOptions;
pub use self::ready::ReadyRequest;
pub use self::request::ConnectRequest;
#[cfg(feature = "tokio")]
pub use self::tokio::AsyncListener;

pub(crate) const VERB: &str = "rdma_accept";
