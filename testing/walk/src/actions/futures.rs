//! Awaiting completion queues, and dropping the futures.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use ibverbs::AsyncCompletionQueue;
use test_support::random::Random;
use tokio::runtime::Runtime;

use crate::action::{Action, Kind};
use crate::model::Id;
use crate::transport::AnyCq;
use crate::violation::Violation;
use crate::world::{World, choose};

/// Number of times that a future is polled before it is dropped.
const MAX_POLLS: usize = 4;

impl World<'_> {
    /// Awaits a completion queue. The future is dropped when it was polled a few times, or it is
    /// awaited until it returns the completions that are due. Meanwhile requests are posted.
    pub(crate) fn wait_for(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let awaitable = |index: &usize| matches!(self.cqs[*index].cq, Some(AnyCq::Async(_)));
        let awaitable: Vec<usize> = (0..self.cqs.len()).filter(awaitable).collect();
        let Some(index) = choose(&awaitable, random) else {
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
                self.act(Action { kind, seed })?;
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
        self.indices().into_iter().any(|at| {
            let end = self.find(at);
            let sends = end.is_some_and(|end| end.send_cq == cq) && self.sends_are_due(at);
            let receives = end.is_some_and(|end| end.recv_cq == cq) && self.message_is_due(at);
            sends || receives
        })
    }
}
