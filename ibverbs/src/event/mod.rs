//! Asynchronous events of a device: state changes of ports, queue pairs and queues.
//!
//! Applications read them from [`AsyncEvents`].

mod reader;
mod types;

pub use self::reader::AsyncEvents;
pub use self::types::{AsyncEvent, EventSource, EventType};
