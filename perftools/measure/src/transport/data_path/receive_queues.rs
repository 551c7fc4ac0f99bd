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

/// A receive queue.
#[derive(Debug)]
struct RecvQueue {
    /// Target of all messages, if their payload is not accessed.
    target: Option<HeldTarget>,
    /// Receives that completed and are not posted again yet.
    used: u32,
}

/// The receive queues of a thread.
#[derive(Debug)]
pub(super) struct RecvQueues {
    /// The receive queue that all queue pairs share.
    shared: Option<SharedRecvQueue>,
    /// The shared queue, or the queue of each queue pair.
    queues: Vec<RecvQueue>,
    /// Completed receives are posted again when there are this many of a queue.
    min_repost: u32,
    /// At least one queue has that many.
    due: bool,
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
        let new_queue = |target| RecvQueue { target, used: 0 };
        let queues = match &mut shared {
            Some(queue) => {
                let held = target.map(|target| hold!(target, memory => queue.hold(memory)));
                vec![new_queue(held.transpose()?)]
            }
            None => qps
                .iter_mut()
                .map(|state| {
                    let held = target.map(|target| hold!(target, memory => state.qp.hold(memory)));
                    Ok(new_queue(held.transpose()?))
                })
                .collect::<Result<_>>()?,
        };
        Ok(Self {
            shared,
            queues,
            min_repost: shape.repost_batch(),
            due: false,
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
        let queue = match &mut *self.queues {
            [only] => only,
            queues => &mut queues[index],
        };
        queue.used += 1;
        if queue.used >= self.min_repost {
            self.due = true;
        }
    }

    /// Posts `count` receives on every queue.
    pub(super) fn fill(
        &mut self,
        qps: &mut [QpState],
        content: &mut Content,
        count: u32,
    ) -> Result<()> {
        (0..self.queues.len()).try_for_each(|queue| self.post(qps, content, queue, count))
    }

    /// Posts receives again for those that completed, if there are enough of them.
    #[inline]
    pub(super) fn refill(&mut self, qps: &mut [QpState], content: &mut Content) -> Result<()> {
        if self.due {
            self.due = false;
            self.refill_queues(qps, content)?;
        }
        Ok(())
    }

    #[inline(never)]
    fn refill_queues(&mut self, qps: &mut [QpState], content: &mut Content) -> Result<()> {
        for queue in 0..self.queues.len() {
            let used = self.queues[queue].used;
            if used >= self.min_repost {
                let count = used - used % self.min_repost;
                self.queues[queue].used -= count;
                self.post(qps, content, queue, count)?;
            }
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
        let target = self.queues[queue].target;
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
