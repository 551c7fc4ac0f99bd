//! The requests in flight on a queue pair, and the moment from which they are done.

use std::collections::VecDeque;
use std::sync::Arc;

use ibverbs::{Error, ErrorKind, Result};

use crate::protocol::arrivals::Notice;
use crate::protocol::stripe::Span;
use crate::protocol::work::{Job, Operation, Waiting};

/// A request in flight.
#[derive(Clone, Debug)]
pub(crate) struct Record<M> {
    pub(crate) number: u64,
    /// `None` for a probe.
    pub(crate) job: Option<Arc<Job<M>>>,
    /// `None` for a message.
    pub(crate) span: Option<Span>,
    /// The last request of its job.
    is_last: bool,
    /// Over iWARP: it is complete, and the number of messages whose arrival proves its own.
    is_complete: bool,
    confirmed_by: u64,
}

/// A result of polling.
#[derive(Debug)]
pub(crate) enum Event<M> {
    /// Bytes of a job were transferred.
    Done(Arc<Job<M>>, usize),
    /// All requests of a job are complete.
    Ended(Arc<Job<M>>),
    /// The probe was acknowledged.
    Probed,
    /// A job of the peer has arrived.
    Arrived(Notice),
}

/// The messages that have arrived over iWARP.
///
/// There a write or a send completes when TCP has accepted its data, before it has arrived, and a
/// message for which no receive is posted ends the connection. Therefore each job of a write ends
/// with a message, and the peer reports the number of messages that have arrived.
#[derive(Clone, Debug, Default, Hash)]
struct Acks {
    /// Number of messages of this side, and those that have arrived.
    sent: u64,
    acknowledged: u64,
    /// Number of messages of the peer, and those that were reported to it.
    received: u64,
    reported: u64,
    /// Number of requests that are not complete. Those of a long write are complete long before the
    /// message that proves their arrival is posted.
    incomplete: usize,
    /// Maximum number of messages in flight: the receives of the peer.
    limit: u64,
}

/// The requests in flight, oldest first.
#[derive(Clone, Debug)]
pub(crate) struct Records<M> {
    queue: VecDeque<Record<M>>,
    next_number: u64,
    /// `None` if requests complete in order, and when they have arrived.
    acks: Option<Acks>,
}

impl<M> Records<M> {
    pub(crate) fn new(is_iwarp: bool) -> Self {
        Self {
            queue: VecDeque::new(),
            next_number: 0,
            acks: is_iwarp.then(Acks::default),
        }
    }

    /// Returns `true` if a completion does not prove that a request has arrived.
    pub(crate) fn need_acks(&self) -> bool {
        self.acks.is_some()
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns the number of requests that the device has.
    pub(crate) fn posted(&self) -> usize {
        let acks = self.acks.as_ref();
        acks.map_or(self.queue.len(), |acks| acks.incomplete)
    }

    /// Sets the number of messages that the peer can receive.
    pub(crate) fn set_limit(&mut self, receives: u32) {
        if let Some(acks) = &mut self.acks {
            acks.limit = receives.into();
        }
    }

    pub(crate) fn can_send(&self) -> bool {
        let acks = self.acks.as_ref();
        acks.is_none_or(|acks| acks.sent - acks.acknowledged < acks.limit)
    }

    /// Returns `true` if no message of the peer has arrived over iWARP.
    pub(crate) fn is_silent(&self) -> bool {
        self.acks.as_ref().is_some_and(|acks| acks.received == 0)
    }

    /// Adds a request, and returns its number.
    pub(crate) fn add(
        &mut self,
        job: Option<&Arc<Job<M>>>,
        span: Option<Span>,
        is_last: bool,
    ) -> u64 {
        self.next_number += 1;
        // The bytes of a read are here when it completes.
        let is_read = job.is_some_and(|job| job.transfer.operation == Operation::Read);
        let confirmed_by = match &mut self.acks {
            None => 0,
            Some(acks) => {
                acks.incomplete += 1;
                // This message, or else the next one, which is delivered after it.
                let next = acks.sent + 1;
                acks.sent += u64::from(span.is_none());
                if is_read { 0 } else { next }
            }
        };
        self.queue.push_back(Record {
            number: self.next_number,
            job: job.cloned(),
            span,
            is_last,
            is_complete: false,
            confirmed_by,
        });
        self.next_number
    }

    /// Returns the request of this number.
    pub(crate) fn get(&mut self, number: u64) -> Option<&mut Record<M>> {
        let first = self.queue.front()?.number;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.queue.get_mut(at)
    }

    /// Removes all requests. Returns their jobs with their pieces, and with the rest of the first
    /// waiting job if it was started.
    pub(crate) fn take_unfinished(
        &mut self,
        waiting: &mut VecDeque<Waiting<M>>,
    ) -> Vec<Waiting<M>> {
        let mut jobs: Vec<Waiting<M>> = Vec::new();
        for Record { job, span, .. } in self.queue.drain(..) {
            let Some(job) = job else { continue };
            match jobs.last_mut() {
                Some(last) if Arc::ptr_eq(&last.job, &job) => last.spans.extend(span),
                _ => jobs.push(Waiting::new(job, span.into_iter().collect())),
            }
        }
        if waiting.front().is_some_and(|front| front.is_started) {
            if let Some(front) = waiting.pop_front() {
                match jobs.last_mut() {
                    Some(last) if Arc::ptr_eq(&last.job, &front.job) => {
                        last.spans.extend(front.spans);
                    }
                    _ => jobs.push(Waiting::new(front.job, front.spans)),
                }
            }
        }
        jobs
    }

    /// Records that a request has completed, and reports those that are done.
    pub(crate) fn complete(&mut self, number: u64, report: impl FnMut(Event<M>)) {
        if self.acks.is_none() {
            return self.report_done(|record, _| record.number <= number, report);
        }
        if let Some(record) = self.get(number) {
            record.is_complete = true;
        }
        if let Some(acks) = &mut self.acks {
            acks.incomplete = acks.incomplete.saturating_sub(1);
        }
        self.report_confirmed(report);
    }

    /// Records the number of messages that have arrived at the peer, and reports the requests that
    /// are done.
    ///
    /// # Errors
    /// [`ErrorKind::Malformed`]: the number is wrong.
    pub(crate) fn acknowledge(&mut self, count: u64, report: impl FnMut(Event<M>)) -> Result<()> {
        match &mut self.acks {
            Some(acks) if (acks.acknowledged..=acks.sent).contains(&count) => {
                acks.acknowledged = count;
            }
            _ => {
                let what = format!("the peer has received {count} messages that were not sent");
                return Err(Error::new(ErrorKind::Malformed, "transfer", what));
            }
        }
        self.report_confirmed(report);
        Ok(())
    }

    /// Counts a message of the peer.
    pub(crate) fn note_received(&mut self) {
        if let Some(acks) = &mut self.acks {
            acks.received += 1;
        }
    }

    /// Returns the number of messages of the peer, if it must be told.
    pub(crate) fn take_received(&mut self) -> Option<u64> {
        let acks = self.acks.as_mut()?;
        let is_new = acks.received != acks.reported;
        acks.reported = acks.received;
        is_new.then_some(acks.received)
    }

    fn report_confirmed(&mut self, report: impl FnMut(Event<M>)) {
        let is_done = |record: &Record<M>, acknowledged| {
            record.is_complete && record.confirmed_by <= acknowledged
        };
        self.report_done(is_done, report);
    }

    /// Removes the requests that are done up to the first one that is not, and reports them.
    fn report_done(
        &mut self,
        is_done: impl Fn(&Record<M>, u64) -> bool,
        mut report: impl FnMut(Event<M>),
    ) {
        let acknowledged = self.acks.as_ref().map_or(0, |acks| acks.acknowledged);
        let is_done = |record: &Record<M>| is_done(record, acknowledged);
        while self.queue.front().is_some_and(is_done) {
            let Some(record) = self.queue.pop_front() else {
                return;
            };
            let Some(job) = record.job else {
                report(Event::Probed);
                continue;
            };
            if let Some(span) = record.span {
                report(Event::Done(Arc::clone(&job), span.len));
            }
            if record.is_last {
                report(Event::Ended(job));
            }
        }
    }
}

#[cfg(test)]
impl<M> Records<M> {
    /// Returns everything that later steps depend on.
    pub(crate) fn shape(&self) -> impl std::hash::Hash {
        let shape = |record: &Record<M>| {
            let job = record.job.as_ref().map(|job| job.number);
            let state = (record.is_last, record.is_complete, record.confirmed_by);
            (record.number, job, record.span.is_some(), state)
        };
        let records: Vec<_> = self.queue.iter().map(shape).collect();
        (self.next_number, records, format!("{:?}", self.acks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of requests that are done after an action.
    fn done(records: &mut Records<()>, action: impl FnOnce(&mut Records<()>)) -> usize {
        let before = records.len();
        action(records);
        before - records.len()
    }

    /// A write, not a message.
    const WRITE: Option<Span> = Some(Span::new(0, 0, 1));

    #[test]
    fn requests_that_complete_in_order_are_done_together() {
        let mut records = Records::new(false);
        for _ in 0..3 {
            records.add(None, WRITE, false);
        }
        assert_eq!(done(&mut records, |records| records.complete(2, |_| ())), 2);
        assert_eq!(records.posted(), 1);
        assert!(records.can_send() && records.take_received().is_none());
    }

    #[test]
    fn a_write_over_iwarp_is_done_when_its_message_has_arrived() {
        let mut records = Records::new(true);
        records.set_limit(1);
        let (first, second) = (
            records.add(None, WRITE, false),
            records.add(None, WRITE, false),
        );
        assert!(records.can_send());
        let message = records.add(None, None, true);
        assert!(!records.can_send(), "the peer has one receive");
        // Not in the order of posting.
        for number in [second, message, first] {
            assert_eq!(
                done(&mut records, |records| records.complete(number, |_| ())),
                0
            );
        }
        assert_eq!((records.posted(), records.len()), (0, 3));
        records.acknowledge(2, |_| ()).expect_err("one was sent");
        let acknowledge = |records: &mut Records<()>| records.acknowledge(1, |_| ()).expect("sent");
        assert_eq!(done(&mut records, acknowledge), 3);
        assert!(records.can_send());
        // Later requests need a later message.
        let third = records.add(None, WRITE, false);
        assert_eq!(
            done(&mut records, |records| records.complete(third, |_| ())),
            0
        );
    }
}
