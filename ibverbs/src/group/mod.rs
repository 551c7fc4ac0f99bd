//! Groups: queue pairs and completion queues that one thread uses, in one thread domain.
//!
//! The provider omits the locks of their queues, and lets them share a doorbell. In C, the program
//! must ensure that one thread at a time uses all of them, also when it destroys one. Here a group
//! and everything in it is neither `Send` nor `Sync`.
//!
//! A thread domain for a single queue pair, which can be sent to another thread, is a
//! [`ParentDomain`](crate::pd::ParentDomain).

mod completion_queue;
mod thread_group;

pub use self::completion_queue::GroupCompletionQueue;
pub use self::thread_group::ThreadGroup;
pub use crate::transport::Grouped;
