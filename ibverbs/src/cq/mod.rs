//! Completion queues: creation, polling, events, and the completions they return.
//!
//! A queue pair or a shared receive queue retires each completion against its table of requests in
//! flight (`in_flight/`).

mod channel;
mod completion;
mod completion_ex;
mod completions;
mod entry_ex;
mod extended;
mod fields;
mod id;
mod modify;
mod options;
mod poll_state;
mod queue;
mod queue_ex;
mod shared;
mod status;
mod strict;
#[cfg(feature = "tokio")]
mod tokio;
mod wc;

pub use self::channel::CompletionChannel;
pub use self::completion::{Completion, UdSource};
pub use self::completion_ex::{CompletionEx, CompletionsEx};
pub use self::completions::Completions;
#[cfg(feature = "efa")]
pub(crate) use self::entry_ex::EntryEx;
#[cfg(feature = "efa")]
pub(crate) use self::fields::private;
pub use self::fields::{CqFields, Disabled, Enabled, Field, FieldSet};
pub use self::id::CqId;
pub use self::options::CqOptions;
pub use self::queue::CompletionQueue;
pub use self::queue_ex::CompletionQueueEx;
pub(crate) use self::shared::SharedCq;
pub use self::status::{WcOpcode, WcStatus};
#[cfg(feature = "tokio")]
pub use self::tokio::AsyncCompletionQueue;
pub(crate) use self::wc::WcFields;
