//! The specification of a test, which all other directories use to describe a test.
//!
//! A [`Spec`] is what the client sends to the server. Both ends check it with the same code:
//! [`Spec::check`] against the limits of this program, [`Spec::fit`] against a device. `fit`
//! returns a [`Shape`], the parameters of the engine.

mod check;
mod config;
pub mod connection;
mod fit;
pub mod footprint;
pub mod gpu;
mod limits;
pub mod modes;
mod parameter;
pub mod path;
pub mod payload_file;
pub mod plan;
mod result_limits;
mod shape;
mod side;
pub mod socket_kind;
pub mod test;
pub mod tuning;

pub use config::Spec;
pub use fit::Bounds;
pub use footprint::Footprint;
pub(crate) use limits::ARRIVALS_WINDOW;
pub use limits::{DEFAULT_TIME, DEFAULT_TIMEOUT, MAX_DEPTH, MAX_THREADS, UNLIMITED, default_depth};
pub use parameter::Parameter;
pub use plan::MAX_MESSAGE;
pub use result_limits::{MinBandwidth, ResultLimits};
pub use shape::Shape;
pub use side::{Limit, Multicast, Side, Sockets};
