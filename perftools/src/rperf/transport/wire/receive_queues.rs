//! Where messages are received: the queue of each queue pair, or one that all share.

use ibverbs::{Completion, Held, QueueId, RecvBatch, Retired, Sink, wr};

use super::memory::Content;
use super::qp::{QpState, with_qp};
use crate::common::error::{Error, Result};
use crate::rperf::spec::Shape;
use crate::rperf::spec::tuning::MAX_POST_LIST;
use crate::rperf::transport::xrc::SharedRecvQueue;

/// A receive queue.
#[derive(Debug)]
struct RecvQueue {
    /// What all are received into, where nothing is looked at.
    sink: Option<Held<Sink>>,
    /// Receives used and not yet posted again.
    used: u32,
}

/// The receive queues of a thread.
#[derive(Debug)]
pub(super) struct RecvQueues {
    /// The one that all share.
    shared: Option<SharedRecvQueue>,
    /// That one, or that of each lane.
    queues: Vec<RecvQueue>,
    /// How many are posted again together, and by one doorbell at most.
    together: u32,
    list: u32,
}

impl RecvQueues {
    /// Lets each queue hold what all is received into.
    pub(super) fn new(
        qps: &mut [QpState],
        mut shared: Option<SharedRecvQueue>,
        sink: Option<&Sink>,
        shape: &Shape,
    ) -> Result<Self> {
        let new_queue = |held: ibverbs::Result<Option<Held<Sink>>>| {
            held.map(|sink| RecvQueue { sink, used: 0 })
                .map_err(Error::from)
        };
        let queues = match &mut shared {
            Some(queue) => vec![new_queue(sink.map(|sink| queue.hold(sink)).transpose())?],
            None => qps
                .iter_mut()
                .map(|state| {
                    new_queue(
                        sink.map(|sink| with_qp!(&mut state.qp, qp => qp.hold(sink)))
                            .transpose(),
                    )
                })
                .collect::<Result<_>>()?,
        };
        let asked = shape.tuning.recv_list;
        Ok(Self {
            shared,
            queues,
            together: asked.unwrap_or(1),
            list: asked.unwrap_or(MAX_POST_LIST),
        })
    }

    /// The queue that all share.
    #[inline]
    pub(super) fn shared_id(&self) -> Option<QueueId> {
        self.shared.as_ref().map(SharedRecvQueue::id)
    }

    /// Retires a receive of the shared queue; none where it is not in flight.
    #[inline]
    pub(super) fn retire(&mut self, completion: Completion<'_>) -> Option<Retired> {
        self.shared.as_mut()?.retire(completion)
    }

    /// Notes that a lane's message took a receive.
    #[inline]
    pub(super) fn took(&mut self, state: usize) {
        let queue = if self.shared.is_some() { 0 } else { state };
        self.queues[queue].used += 1;
    }

    /// Posts as many receives on every queue.
    pub(super) fn fill(
        &mut self,
        qps: &mut [QpState],
        content: &mut Content,
        each: u32,
    ) -> Result<()> {
        (0..self.queues.len()).try_for_each(|queue| self.post(qps, content, queue, each))
    }

    /// Posts those again that were used, where they are enough.
    #[inline]
    pub(super) fn refill(&mut self, qps: &mut [QpState], content: &mut Content) -> Result<()> {
        for queue in 0..self.queues.len() {
            let used = self.queues[queue].used;
            if used >= self.together {
                let now = if self.together == 1 {
                    used
                } else {
                    used - used % self.together
                };
                self.queues[queue].used -= now;
                self.post(qps, content, queue, now)?;
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
        let sink = self.queues[queue].sink;
        let mut left = count;
        while left > 0 {
            let now = left.min(self.list);
            left -= now;
            match (&mut self.shared, qps.get_mut(queue)) {
                (None, Some(QpState { qp, .. })) if now == 1 && sink.is_some() => {
                    sink.map_or(Ok(()), |sink| qp.recv(sink))
                }
                (Some(queue), _) => queue.recv_batch(|batch| add(batch, now, sink, content)),
                (None, Some(state)) => state.qp.recv_batch(|batch| add(batch, now, sink, content)),
                (None, None) => {
                    return Err(Error::protocol("a receive queue without its queue pair"));
                }
            }?;
        }
        Ok(())
    }
}

fn add(
    batch: &mut RecvBatch<'_>,
    count: u32,
    sink: Option<Held<Sink>>,
    content: &mut Content,
) -> ibverbs::Result<()> {
    for _ in 0..count {
        match (&mut *content, sink) {
            (Content::Distinct { idle, .. }, _) if idle.is_empty() => {
                batch.recv(wr::recv(wr::Empty))?;
            }
            (Content::Distinct { idle, .. }, _) => {
                if let Some(buf) = idle.pop() {
                    batch.recv(wr::recv(buf))?;
                }
            }
            (_, Some(sink)) => batch.recv(wr::recv(sink))?,
            (_, None) => batch.recv(wr::recv(wr::Empty))?,
        }
    }
    Ok(())
}
