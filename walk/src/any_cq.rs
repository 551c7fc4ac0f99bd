//! Completion queues that are polled, and those that can also be awaited.

use std::ops::Deref;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use ibverbs::{AsyncCompletionQueue, CompletionQueue, Completions};
use test_support::random::Random;
use tokio::runtime::Runtime;

use crate::Violation;
use crate::action::{Action, Kind};
use crate::memory::Id;
use crate::objects::pick;
use crate::world::World;

/// Number of times that a future is polled before it is dropped.
const MAX_POLLS: usize = 4;

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

impl World<'_> {
    /// Awaits a completion queue. The future is dropped when it was polled a few times, or it is
    /// awaited until it returns the completions that are due. Meanwhile requests are posted.
    pub(crate) fn wait_for(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let awaitable = |index: &usize| matches!(self.cqs[*index].cq, Some(AnyCq::Async(_)));
        let awaitable: Vec<usize> = (0..self.cqs.len()).filter(awaitable).collect();
        let Some(index) = pick(&awaitable, random).map(|index| awaitable[index]) else {
            return Ok(false);
        };
        let id = self.cqs[index].id;
        let Some(AnyCq::Async(mut cq)) = self.cqs[index].cq.take() else {
            return Ok(false);
        };
        let mut runtime = self.runtime.take().expect("created with the queue");
        let result = self.completions(&mut cq, id, &mut runtime, random);
        self.runtime = Some(runtime);
        self.cqs[index].cq = Some(AnyCq::Async(cq));
        result
    }

    fn completions(
        &mut self,
        cq: &mut AsyncCompletionQueue,
        id: Id,
        runtime: &mut Runtime,
        random: &mut Random,
    ) -> Result<bool, Violation> {
        let start = Instant::now();
        let mut polls = random.below(MAX_POLLS + 1);
        let cancels = random.below(2) == 0;
        let mut future = pin!(cq.completions());
        let completions = loop {
            let polled = runtime.block_on(async {
                // Lets the runtime read the events of the channel.
                tokio::task::yield_now().await;
                let mut context = Context::from_waker(Waker::noop());
                future.as_mut().poll(&mut context)
            });
            if let Poll::Ready(completions) = polled {
                break completions?;
            }
            // Completions of these requests must wake the future.
            if random.below(3) == 0 {
                let kinds = [Kind::Post, Kind::PostFetch, Kind::PostRecv, Kind::PostBatch];
                let kind = kinds[random.below(kinds.len())];
                let seed = random.next_u64() | 1;
                self.perform(Action { kind, seed })?;
            }
            polls = polls.saturating_sub(1);
            let is_due = !cancels && self.is_due(id);
            if polls == 0 && !is_due {
                return Ok(true);
            }
            if start.elapsed() > self.setup.timeout {
                let what = format!("completion queue {id}: the future missed a completion");
                return Err(Violation(what));
            }
        };
        let mut arrived = Vec::new();
        for completion in completions {
            arrived.push(self.assign(completion, id)?);
        }
        if arrived.is_empty() {
            let what = format!("completion queue {id}: the future returned no completion");
            return Err(Violation(what));
        }
        arrived.into_iter().try_for_each(|one| self.retire(one))?;
        Ok(true)
    }

    /// Returns `true` if a request will complete in this completion queue without another action.
    fn is_due(&self, cq: Id) -> bool {
        let mut ends = (0..self.links.len()).flat_map(|link| [(link, 0), (link, 1)]);
        ends.any(|at| {
            let end = self.links[at.0].ends[at.1].as_ref();
            end.is_some_and(|end| end.send_cq == cq) && self.sends_are_due(at)
        })
    }
}
