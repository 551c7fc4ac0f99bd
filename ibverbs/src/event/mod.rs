//! Asynchronous events of a device: ports, queue pairs and queues that change state.
//!
//! An application reads them from [`AsyncEvents`].

mod reader;
mod types;

pub use self::reader::AsyncEvents;
pub use self::types::{AsyncEvent, EventSource, EventType};
