//! The fields of completions are selected with `CqFields`.
use ibverbs::cq_ex::CompletionQueueEx;

fn rule(_: CompletionQueueEx<u64>) {}

fn main() {}
