//! The threads of an engine, which advance its devices, and the connection to each peer.

mod messages;
pub(crate) mod peer;
pub(crate) mod shared;
pub(crate) mod state;
