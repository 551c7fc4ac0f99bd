//! Events: queues, and the descriptor that the program polls.

use std::os::fd::AsRawFd;

use zerocopy::FromZeros;

use super::{Cm, Event, File};
use crate::abi::rdma_cm::{EventResp, event};
use crate::errno::{Errno, Result};
use crate::syscall;

impl File {
    fn push(&mut self, event: Event) {
        self.events.push_back(event);
        syscall::signal(self.signal.as_raw_fd());
    }

    /// Makes the descriptor unreadable if no event is left.
    fn update(&self) {
        if self.events.is_empty() {
            syscall::clear_signal(self.signal.as_raw_fd());
        }
    }
}

/// Returns an event without data. Its identifier is set when it is posted.
pub(super) fn plain(event: u32, status: i32) -> EventResp {
    EventResp {
        event,
        status,
        ..EventResp::new_zeroed()
    }
}

impl Cm {
    /// Reports an event of an identifier. The kernel reports none before the program has accepted
    /// a request, because it has no value for the identifier yet.
    pub(super) fn post(&mut self, number: u32, response: EventResp) {
        if let Some(id) = self.ids.get(number)
            && id.uid != 0
            && let Some(file) = self.files.get_mut(id.file)
        {
            file.push(Event {
                id: number,
                request: None,
                response: EventResp {
                    uid: id.uid,
                    id: number,
                    ..response
                },
            });
        }
    }

    /// Reports a connection request to its listener. Returns `false` if the backlog is full.
    pub(super) fn post_request(
        &mut self,
        listener: u32,
        request: u32,
        response: EventResp,
    ) -> bool {
        let Some(id) = self.ids.get_mut(listener) else {
            return false;
        };
        let Some(backlog) = id.backlog.checked_sub(1) else {
            return false;
        };
        let Some(file) = self.files.get_mut(id.file) else {
            return false;
        };
        id.backlog = backlog;
        file.push(Event {
            id: listener,
            request: Some(request),
            response: EventResp {
                uid: id.uid,
                id: request,
                ..response
            },
        });
        true
    }

    /// Returns the next event of a file. Fails with `EAGAIN` if there is none.
    pub(super) fn next_event(&mut self, file: u32) -> Result<EventResp> {
        let number = file;
        let file = self.files.get_mut(number).ok_or(Errno::EBADF)?;
        let event = file.events.pop_front().ok_or(Errno::EAGAIN)?;
        file.update();
        if let Some(owner) = self.ids.get_mut(event.id) {
            owner.events_reported += 1;
            if event.response.event == event::CONNECT_REQUEST {
                owner.backlog += 1;
            }
        }
        if let Some(request) = event.request.and_then(|id| self.ids.get_mut(id)) {
            // The listener may have migrated since then.
            request.file = number;
        }
        Ok(event.response)
    }

    /// Removes the unread events of an identifier. Returns the requests among them.
    pub(super) fn forget_events(&mut self, file: u32, id: u32) -> Vec<u32> {
        let mut requests = Vec::new();
        if let Some(file) = self.files.get_mut(file) {
            file.events.retain(|event| {
                if event.id == id {
                    requests.extend(event.request);
                }
                event.id != id
            });
            file.update();
        }
        requests
    }

    /// Moves an identifier and its events to another file. Returns the number of its events that
    /// the program has read.
    pub(super) fn migrate(&mut self, number: u32, from: u32, to: u32) -> Result<u32> {
        let id = self.id(from, number)?;
        let reported = id.events_reported;
        if from == to {
            return Ok(reported);
        }
        id.file = to;
        let source = self.files.get_mut(from).ok_or(Errno::EBADF)?;
        let (moved, kept): (Vec<Event>, Vec<Event>) = std::mem::take(&mut source.events)
            .into_iter()
            .partition(|event| event.id == number);
        source.events = kept.into();
        source.update();
        let target = self.files.get_mut(to).ok_or(Errno::EBADF)?;
        for event in moved {
            target.push(event);
        }
        Ok(reported)
    }
}
