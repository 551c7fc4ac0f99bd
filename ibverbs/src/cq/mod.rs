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
mod in_place;
mod options;
mod poll_each;
mod polling;
mod queue;
mod says;
mod shared;
pub(crate) mod standing;
mod status;
#[cfg(feature = "tokio")]
mod tokio;
mod with_fields;

pub use self::channel::CompletionChannel;
pub use self::completion::{Completion, UdSource};
pub use self::completion_ex::{CompletionEx, CompletionsEx};
pub use self::completions::Completions;
pub use self::fields::{CqFields, Disabled, Enabled, Field, FieldSet};
pub use self::id::CqId;
pub use self::in_place::{CompletionInPlace, InPlace};
pub use self::options::CqOptions;
pub use self::queue::CompletionQueue;
pub(crate) use self::says::{Ended, Said, Says};
pub(crate) use self::shared::Shared;
pub use self::status::{WcOpcode, WcStatus};
#[cfg(feature = "tokio")]
pub use self::tokio::AsyncCompletionQueue;
pub use self::with_fields::CompletionQueueEx;
