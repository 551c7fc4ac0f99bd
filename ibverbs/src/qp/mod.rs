//! Queue pairs: creation, states and attributes, posting requests and retiring completions.
//!
//! Scopes, XRC receiving halves and the crate `rdmacm` build on them.

mod alternate;
mod attr;
mod batch;
mod bind;
mod builder;
mod change;
mod counter;
mod create;
mod datagram;
mod drain;
mod ece;
mod flow;
mod functions;
mod handle;
mod hold;
mod options;
mod pair;
mod post;
mod query;
mod refused;
mod resize;
mod retire;
mod state;
mod tables;
mod transitions;

pub use self::alternate::{AlternatePath, MigState};
pub use self::attr::{Endpoint, RcPath};
pub use self::batch::Batch;
pub(crate) use self::builder::Parts;
pub use self::change::QpChange;
pub use self::datagram::DatagramAttr;
pub use self::drain::DRAIN_TAG;
pub use self::ece::Ece;
pub(crate) use self::handle::QpHandle;
pub use self::options::{OptionalOps, QpCaps, QpOptions};
pub use self::pair::QueuePair;
pub use self::query::QpAttr;
pub use self::state::QpState;
