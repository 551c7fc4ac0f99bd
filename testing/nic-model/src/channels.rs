//! Descriptors from which the program reads completion events and asynchronous events.
//!
//! An event channel is a pipe. The kernel forgets the unread events of an object that is destroyed
//! and reports how many were read. The model therefore can also read the pipe, with a description
//! of its own that does not block.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::errno::{Errno, Result};
use crate::syscall;
use crate::table::Table;

pub(crate) struct Channel {
    writer: File,
    drain: File,
    /// Size of an event, in bytes.
    size: usize,
    /// Events that did not fit into the pipe.
    waiting: VecDeque<Vec<u8>>,
    /// Descriptors of the program and objects of the adapter that refer to the channel.
    uses: u32,
}

pub(crate) struct Channels {
    table: Table<Channel>,
    /// The next completion event is lost.
    pub(crate) lose_next: bool,
    /// Channel and object of each event that was lost.
    lost: Vec<(u32, u64)>,
}

/// Size of a completion event, in bytes.
pub(crate) const COMPLETION: usize = 8;
/// Size of an asynchronous event, in bytes.
pub(crate) const ASYNC: usize = 16;

impl Channels {
    pub(crate) fn new() -> Self {
        Self {
            table: Table::new(1 << 16),
            lose_next: false,
            lost: Vec::new(),
        }
    }

    /// Creates a channel, and returns its number and the descriptor of the program.
    pub(crate) fn create(&mut self, size: usize) -> Result<(u32, OwnedFd)> {
        let (reader, writer) = syscall::pipe()?;
        let drain = File::open(format!("/proc/self/fd/{}", reader.as_raw_fd()))
            .map_err(|_| Errno::EMFILE)?;
        syscall::set_nonblocking(drain.as_raw_fd())?;
        syscall::set_nonblocking(writer.as_raw_fd())?;
        let number = self.table.insert(Channel {
            writer: writer.into(),
            drain,
            size,
            waiting: VecDeque::new(),
            uses: 1,
        })?;
        Ok((number, reader))
    }

    /// Returns the number of descriptors that only the model uses.
    pub(crate) fn descriptors(&self) -> usize {
        // Those that write, and that remove events.
        2 * self.table.iter().count()
    }

    /// Adds a reference to the channel.
    pub(crate) fn hold(&mut self, number: u32) {
        if let Some(channel) = self.table.get_mut(number) {
            channel.uses += 1;
        }
    }

    /// Removes a reference. The last one removes the channel.
    pub(crate) fn release(&mut self, number: u32) {
        if let Some(channel) = self.table.get_mut(number) {
            channel.uses -= 1;
            if channel.uses == 0 {
                self.table.remove(number);
            }
        }
    }

    /// Reports a completion event of the completion queue with this user handle.
    pub(crate) fn completion(&mut self, number: u32, user_handle: u64) {
        if std::mem::take(&mut self.lose_next) {
            self.lost.push((number, user_handle));
            return;
        }
        self.post(number, &user_handle.to_ne_bytes());
    }

    /// Reports an asynchronous event.
    pub(crate) fn asynchronous(&mut self, number: u32, element: u64, event: u32) {
        let mut bytes = [0; ASYNC];
        bytes[..8].copy_from_slice(&element.to_ne_bytes());
        bytes[8..12].copy_from_slice(&event.to_ne_bytes());
        self.post(number, &bytes);
    }

    fn post(&mut self, number: u32, event: &[u8]) {
        if let Some(channel) = self.table.get_mut(number) {
            debug_assert_eq!(event.len(), channel.size);
            channel.waiting.push_back(event.to_vec());
            channel.flush();
        }
    }

    /// Moves events that waited for room into the pipes.
    pub(crate) fn flush(&mut self) {
        for number in self.table.numbers() {
            if let Some(channel) = self.table.get_mut(number) {
                channel.flush();
            }
        }
    }

    /// Removes the unread events of an object and returns their number.
    pub(crate) fn forget(&mut self, number: u32, user_handle: u64) -> u32 {
        let before = self.lost.len();
        self.lost.retain(|lost| *lost != (number, user_handle));
        let lost = before - self.lost.len();
        let Some(channel) = self.table.get_mut(number) else {
            return 0;
        };
        let mut events = Vec::new();
        let mut event = vec![0; channel.size];
        while matches!(channel.drain.read(&mut event), Ok(n) if n == event.len()) {
            events.push(event.clone());
        }
        events.extend(channel.waiting.drain(..));
        let all = events.len();
        let key = user_handle.to_ne_bytes();
        events.retain(|event| event[..8] != key);
        let removed = all - events.len() + lost;
        channel.waiting = events.into();
        channel.flush();
        u32::try_from(removed).unwrap_or(u32::MAX)
    }
}

impl Channel {
    fn flush(&mut self) {
        while let Some(event) = self.waiting.front() {
            if self.writer.write(event).is_err() {
                break;
            }
            self.waiting.pop_front();
        }
    }
}
