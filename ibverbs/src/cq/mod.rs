//! Completion queues: where finished work requests are reported.

mod burst;
mod change;
mod channel;
mod completion;
mod completion_ex;
mod completions;
mod extended;
mod fields;
mod id;
mod options;
mod polling;
mod queue;
mod shared;
mod status;
mod with_fields;

pub use self::channel::CompletionChannel;
pub use self::completion::{Completion, UdSource};
pub use self::completion_ex::{CompletionEx, CompletionsEx};
pub use self::completions::Completions;
pub use self::fields::{Asked, CqFields, FieldSet, With, Without};
pub use self::id::CqId;
pub use self::options::CqOptions;
pub use self::queue::CompletionQueue;
pub(crate) use self::shared::Shared;
pub use self::status::{WcOpcode, WcStatus};
pub use self::with_fields::CompletionQueueEx;
