//! Queue pairs: where work requests are posted, and where they are retired.

mod attr;
mod batch;
mod builder;
mod datagram;
mod inflight;
mod lent;
mod operation;
mod owner;
mod pair;
mod payload;
mod post;
mod receives;
mod rejected;
mod retired;
mod scope;
mod scratch;
mod srq;
mod state;
mod transport;
mod window;
pub mod wr;

pub use self::attr::{Endpoint, RcPath};
pub use self::batch::Batch;
pub use self::builder::{QpCaps, QpOptions};
pub use self::datagram::{Destination, HeldAddress};
pub use self::lent::{Lent, LentMut};
pub use self::operation::Operation;
pub use self::pair::QueuePair;
pub use self::receives::RecvBatch;
pub use self::rejected::{PostError, Rejected};
pub use self::retired::{NotMine, Reclaimed, Retired};
pub use self::scope::{Scope, ScopeEnd};
pub use self::scratch::BatchError;
pub use self::srq::{SharedReceiveQueue, SrqAttr, SrqOptions};
pub use self::state::QpState;
pub use self::transport::{Connected, QpType, Rc, Transport, Uc, Ud};
