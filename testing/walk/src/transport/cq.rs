//! Completion queues that are polled, and those that can also be awaited.

use std::ops::Deref;

use ibverbs::{AsyncCompletionQueue, CompletionQueue, Completions};
use tokio::runtime::Runtime;

pub(crate) enum AnyCq {
    Plain(CompletionQueue),
    Async(AsyncCompletionQueue),
}

impl AnyCq {
    pub(crate) fn poll(&mut self) -> ibverbs::Result<Completions<'_>> {
        match self {
            Self::Plain(cq) => cq.poll(),
            Self::Async(cq) => cq.poll(),
        }
    }

    pub(crate) fn resize(&mut self, depth: u32) -> ibverbs::Result<()> {
        match self {
            Self::Plain(cq) => cq.resize(depth),
            Self::Async(cq) => cq.resize(depth),
        }
    }
}

impl Deref for AnyCq {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        match self {
            Self::Plain(cq) => cq,
            Self::Async(cq) => cq,
        }
    }
}

/// Creates a runtime for completion queues that can be awaited.
pub(crate) fn new_runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_io().build().expect("runtime")
}
