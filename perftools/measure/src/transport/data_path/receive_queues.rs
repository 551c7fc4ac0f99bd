//! The receive queues of a thread: one for each queue pair, or a shared one.

use base::error::{Error, Result};
use ibverbs::{
    Completion, DeviceRegion, Held, QueueId, RecvBatch, Retired, Sink,
    wr::{self, RecvPayload, RecvRequest},
};

use super::memory::{Content, RecvTarget};
use super::qp::QpState;
use crate::spec::Shape;
use crate::spec::tuning::MAX_POST_LIST;
use crate::transport::xrc::SharedRecvQueue;

/// A [`RecvTarget`], as held by a receive queue.
#[derive(Clone, Copy, Debug)]
enum HeldTarget {
    Host(Held<Sink>),
    Gpu(Held<DeviceRegion>),
}

/// Evaluates an expression with the memory of a [`RecvTarget`], and returns a [`HeldTarget`].
macro_rules! hold {
    ($target:expr, $memory:ident => $body:expr) => {
        match $target {
            RecvTarget::Host($memory) => $body.map(HeldTarget::Host),
            RecvTarget::Gpu($memory) => $body.map(HeldTarget::Gpu),
        }
    };
}

/// The receives that completed and are not posted again yet. Their cost does not depend on the
/// number of queues.
#[derive(Debug)]
struct UsedReceives {
    /// Number of receives of each queue.
    counts: Vec<u32>,
    /// Queues with at least `batch` receives.
    due: Vec<usize>,
    batch: u32,
}

impl UsedReceives {
    fn new(queues: usize, batch: u32) -> Self {
        Self {
            counts: vec![0; queues],
            due: Vec::with_capacity(queues),
            batch,
        }
    }

    /// Records that a receive of a queue completed.
    #[inline]
    fn record(&mut self, queue: usize) {
        // All queue pairs may share a queue.
        let queue = if self.counts.len() == 1 { 0 } else { queue };
        let count = &mut self.counts[queue];
        *count += 1;
        if *count == self.batch {
            self.due.push(queue);
        }
    }

    /// Takes the full batches of a queue that is due. Returns the queue and the number of receives.
    fn take(&mut self) -> Option<(usize, u32)> {
        let queue = self.due.pop()?;
        let count = &mut self.counts[queue];
        let rest = *count % self.batch;
        Some((queue, std::mem::replace(count, rest) - rest))
    }
}

/// The receive queues of a thread.
#[derive(Debug)]
pub(super) struct RecvQueues {
    /// The receive queue that all queue pairs share.
    shared: Option<SharedRecvQueue>,
    /// The target of all messages, as held by the shared queue or by the queue of each queue pair.
    /// `None` if their payload is accessed.
    targets: Vec<Option<HeldTarget>>,
    used: UsedReceives,
    /// Largest number of receives in one batch.
    max_batch: u32,
}

impl RecvQueues {
    /// Creates the queues. Each holds `target`, the target of all messages.
    pub(super) fn new(
        qps: &mut [QpState],
        mut shared: Option<SharedRecvQueue>,
        target: Option<&RecvTarget>,
        shape: &Shape,
    ) -> Result<Self> {
        let targets = match &mut shared {
            Some(queue) => {
                let held = target.map(|target| hold!(target, memory => queue.hold(memory)));
                vec![held.transpose()?]
            }
            None => qps
                .iter_mut()
                .map(|state| {
                    let held = target.map(|target| hold!(target, memory => state.qp.hold(memory)));
                    Ok(held.transpose()?)
                })
                .collect::<Result<_>>()?,
        };
        Ok(Self {
            shared,
            used: UsedReceives::new(targets.len(), shape.repost_batch()),
            targets,
            max_batch: shape.tuning.recv_list.unwrap_or(MAX_POST_LIST),
        })
    }

    /// Returns the ID of the shared queue.
    #[inline]
    pub(super) fn shared_id(&self) -> Option<QueueId> {
        self.shared.as_ref().map(SharedRecvQueue::id)
    }

    /// Retires a receive of the shared queue; returns `None` if it is not in flight.
    #[inline]
    pub(super) fn retire(&mut self, completion: Completion<'_>) -> Option<Retired> {
        self.shared.as_mut()?.retire(completion)
    }

    /// Records that a message arrived on queue pair `index` and used a receive.
    #[inline]
    pub(super) fn record_use(&mut self, index: usize) {
        self.used.record(index);
    }

    /// Posts `count` receives on every queue.
    pub(super) fn fill(
        &mut self,
        qps: &mut [QpState],
        content: &mut Content,
        count: u32,
    ) -> Result<()> {
        (0..self.targets.len()).try_for_each(|queue| self.post(qps, content, queue, count))
    }

    /// Posts receives again for those that completed, if there are enough of them.
    #[inline]
    pub(super) fn refill(&mut self, qps: &mut [QpState], content: &mut Content) -> Result<()> {
        if !self.used.due.is_empty() {
            self.refill_queues(qps, content)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn refill_queues(&mut self, qps: &mut [QpState], content: &mut Content) -> Result<()> {
        while let Some((queue, count)) = self.used.take() {
            self.post(qps, content, queue, count)?;
        }
        Ok(())
    }

    fn post(
        &mut self,
        qps: &mut [QpState],
        content: &mut Content,
        queue: usize,
        count: u32,
    ) -> Result<()> {
        let target = self.targets[queue];
        let mut remaining = count;
        while remaining > 0 {
            let now = remaining.min(self.max_batch);
            remaining -= now;
            match (&mut self.shared, qps.get_mut(queue), target) {
                (None, Some(state), Some(HeldTarget::Host(sink))) if now == 1 => {
                    state.qp.post_recv(sink)
                }
                (None, Some(state), Some(HeldTarget::Gpu(region))) if now == 1 => {
                    state.qp.post_recv(region)
                }
                (Some(queue), _, _) => {
                    queue.recv_batch(|batch| add_receives(batch, now, target, content))
                }
                (None, Some(state), _) => state
                    .qp
                    .recv_batch(|batch| add_receives(batch, now, target, content)),
                (None, None, _) => {
                    return Err(Error::protocol("a receive queue has no queue pair"));
                }
            }?;
        }
        Ok(())
    }
}

/// Adds `count` receives to a batch. Receives without a buffer are sufficient for credits and for
/// immediate data.
fn add_receives(
    batch: &mut RecvBatch<'_>,
    count: u32,
    target: Option<HeldTarget>,
    content: &mut Content,
) -> ibverbs::Result<()> {
    match (content, target) {
        (Content::Distinct { idle, .. }, _) => {
            for _ in 0..count {
                match idle.pop() {
                    Some(buf) => batch.recv(wr::recv(buf))?,
                    None => batch.recv(wr::recv(wr::Empty))?,
                }
            }
            Ok(())
        }
        (_, Some(HeldTarget::Host(sink))) => add_copies(batch, count, wr::recv(sink)),
        (_, Some(HeldTarget::Gpu(region))) => add_copies(batch, count, wr::recv(region)),
        (_, None) => add_copies(batch, count, wr::recv(wr::Empty)),
    }
}

/// Adds the same receive `count` times to a batch.
fn add_copies<P: RecvPayload + Copy>(
    batch: &mut RecvBatch<'_>,
    count: u32,
    request: RecvRequest<P>,
) -> ibverbs::Result<()> {
    for _ in 0..count {
        batch.recv(request)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_queues_with_a_full_batch_are_due() {
        let mut used = UsedReceives::new(1000, 4);
        for queue in [7, 7, 900, 7, 7, 7, 900, 3, 900, 900, 900] {
            used.record(queue);
        }
        assert_eq!(used.take(), Some((900, 4)));
        assert_eq!(used.take(), Some((7, 4)));
        assert_eq!(used.take(), None);
        // The rest counts for the next batch.
        for queue in [7, 7, 7] {
            used.record(queue);
        }
        assert_eq!((used.take(), used.take()), (Some((7, 4)), None));
    }

    #[test]
    fn the_shared_queue_takes_all_receives() {
        let mut used = UsedReceives::new(1, 2);
        for queue in [5, 9, 1, 0, 3] {
            used.record(queue);
        }
        assert_eq!((used.take(), used.take()), (Some((0, 4)), None));
    }
}
