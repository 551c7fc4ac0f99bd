//! Where messages are received: the queue of each queue pair, or one that all share.

use ibverbs::{Completion, Held, QueueId, RecvBatch, Retired, Sink, wr};

use super::line::{Lane, with_qp};
use super::memory::Content;
use crate::config::Shape;
use crate::error::{Error, Result};
use crate::transport::xrc::Queue;
use crate::tuning::MAX_POST_LIST;

/// A receive queue.
#[derive(Debug)]
struct Store {
    /// What all are received into, where nothing is looked at.
    sink: Option<Held<Sink>>,
    /// Receives used and not yet posted again.
    used: u32,
}

/// The receive queues of a thread.
#[derive(Debug)]
pub(super) struct Receiving {
    /// The one that all share.
    shared: Option<Queue>,
    /// That one, or that of each lane.
    stores: Vec<Store>,
    /// How many are posted again together, and by one doorbell at most.
    together: u32,
    list: u32,
}

impl Receiving {
    /// Lets each queue hold what all is received into.
    pub(super) fn new(
        lanes: &mut [Lane],
        mut shared: Option<Queue>,
        sink: Option<&Sink>,
        shape: &Shape,
    ) -> Result<Self> {
        let store = |held: ibverbs::Result<Option<Held<Sink>>>| {
            held.map(|sink| Store { sink, used: 0 })
                .map_err(Error::from)
        };
        let stores = match &mut shared {
            Some(queue) => vec![store(sink.map(|sink| queue.hold(sink)).transpose())?],
            None => lanes
                .iter_mut()
                .map(|lane| {
                    store(
                        sink.map(|sink| with_qp!(&mut lane.line, qp => qp.hold(sink)))
                            .transpose(),
                    )
                })
                .collect::<Result<_>>()?,
        };
        let asked = shape.tuning.recv_list;
        Ok(Self {
            shared,
            stores,
            together: asked.unwrap_or(1),
            list: asked.unwrap_or(MAX_POST_LIST),
        })
    }

    /// The queue that all share.
    #[inline]
    pub(super) fn shared_id(&self) -> Option<QueueId> {
        self.shared.as_ref().map(Queue::id)
    }

    /// Retires a receive of the shared queue; none where it is not in flight.
    #[inline]
    pub(super) fn retire(&mut self, completion: Completion<'_>) -> Option<Retired> {
        self.shared.as_mut()?.retire(completion)
    }

    /// Notes that a lane's message took a receive.
    #[inline]
    pub(super) fn took(&mut self, lane: usize) {
        let store = if self.shared.is_some() { 0 } else { lane };
        self.stores[store].used += 1;
    }

    /// Posts as many receives on every queue.
    pub(super) fn fill(
        &mut self,
        lanes: &mut [Lane],
        content: &mut Content,
        each: u32,
    ) -> Result<()> {
        (0..self.stores.len()).try_for_each(|store| self.post(lanes, content, store, each))
    }

    /// Posts those again that were used, where they are enough.
    #[inline]
    pub(super) fn refill(&mut self, lanes: &mut [Lane], content: &mut Content) -> Result<()> {
        for store in 0..self.stores.len() {
            let used = self.stores[store].used;
            if used >= self.together {
                let now = if self.together == 1 {
                    used
                } else {
                    used - used % self.together
                };
                self.stores[store].used -= now;
                self.post(lanes, content, store, now)?;
            }
        }
        Ok(())
    }

    fn post(
        &mut self,
        lanes: &mut [Lane],
        content: &mut Content,
        store: usize,
        count: u32,
    ) -> Result<()> {
        let sink = self.stores[store].sink;
        let mut left = count;
        while left > 0 {
            let now = left.min(self.list);
            left -= now;
            match (&mut self.shared, lanes.get_mut(store)) {
                (None, Some(Lane { line, .. })) if now == 1 && sink.is_some() => {
                    sink.map_or(Ok(()), |sink| line.recv(sink))
                }
                (Some(queue), _) => queue.recv_batch(|batch| add(batch, now, sink, content)),
                (None, Some(lane)) => lane.line.recv_batch(|batch| add(batch, now, sink, content)),
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
