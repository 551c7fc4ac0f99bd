//! Waiting until requests complete.

use std::time::Instant;

use test_support::random::Random;

use crate::action::Kind;
use crate::model::{Arrival, Link, QpIndex};
use crate::violation::Violation;
use crate::world::World;

impl World<'_> {
    /// Returns `true` if sends of a queue pair will complete without another action.
    pub(crate) fn sends_are_due(&self, at: QpIndex) -> bool {
        let Some(end) = self.find(at).filter(|_| !self.has_failed(at)) else {
            return false;
        };
        let waiting = match at {
            QpIndex::Datagram(index) => self.waiting_messages(index),
            QpIndex::Link(..) => match self.peer(at) {
                Some(peer) if peer.srq.is_some() => 0,
                Some(peer) if peer.incoming.len() <= peer.unpolled_recvs.len() => 0,
                _ => usize::MAX,
            },
        };
        end.unpolled_sends.len() > waiting
    }

    /// Returns `true` if a message to a queue pair will arrive without another action.
    pub(crate) fn message_is_due(&self, at: QpIndex) -> bool {
        let Some(end) = self.find(at).filter(|_| !self.has_failed(at)) else {
            return false;
        };
        let has_receive = end.srq.is_some() || !end.unpolled_recvs.is_empty();
        match at {
            QpIndex::Link(link, _) => {
                let Link { lossy, .. } = self.links[link];
                let certain = !lossy && self.peer(at).is_some();
                certain && has_receive && !end.incoming.is_empty()
            }
            QpIndex::Datagram(_) => end.incoming.iter().any(|message| match message.arrival {
                Arrival::Certain => true,
                Arrival::Waiting => has_receive,
                Arrival::Possible => false,
            }),
        }
    }

    /// Returns the queue pairs whose requests should have completed.
    fn unsettled(&self) -> Vec<QpIndex> {
        let is_due = |&at: &QpIndex| self.sends_are_due(at) || self.message_is_due(at);
        self.indices().into_iter().filter(is_due).collect()
    }

    /// Waits until the requests of all working queue pairs have completed.
    pub(crate) fn settle(&mut self) -> Result<bool, Violation> {
        let start = Instant::now();
        loop {
            for index in 0..self.cqs.len() {
                while self.poll_cq(index, Kind::Poll, &mut Random::new(1))? > 0 {}
            }
            let unsettled = self.unsettled();
            if unsettled.is_empty() {
                return Ok(true);
            }
            if start.elapsed() > self.setup.timeout {
                let unsettled: Vec<String> = unsettled
                    .into_iter()
                    .map(|at| self.describe_end(at))
                    .collect();
                let unsettled = unsettled.join("; ");
                return Err(Violation(format!("requests did not complete: {unsettled}")));
            }
            std::thread::yield_now();
        }
    }
}
