//! Transfers of a namespace that continue on a new controller after the connection was lost.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::bench::xorshift;
use crate::controller::{Controller, Namespace, Subsystem};
use crate::queue::Queue;
use crate::{Error, Result};

/// Delay between two attempts to connect.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);
/// Time after which a lost controller is given up.
const CONTROLLER_LOSS_TIMEOUT: Duration = Duration::from_secs(60);

/// A direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads the namespace.
    Read,
    /// Writes bytes that depend on this seed and on their position.
    Write(u64),
}

/// A controller that is replaced when its connection is lost.
#[derive(Debug)]
pub struct Session {
    subsystem: Subsystem,
    /// The controller.
    pub controller: Controller,
    /// Number of lost connections.
    pub reconnects: u32,
    /// Number of commands in flight on lost connections, which were executed again.
    pub repeated: usize,
}

impl Session {
    /// Connects to a subsystem.
    ///
    /// # Errors
    /// Those of [`Controller::connect`].
    pub fn connect(subsystem: Subsystem) -> Result<Self> {
        Ok(Self {
            controller: Controller::connect(&subsystem)?,
            subsystem,
            reconnects: 0,
            repeated: 0,
        })
    }

    /// Transfers the first `len` bytes of the namespace and returns their SHA-256.
    ///
    /// A command whose completion did not arrive is executed again after a reconnection: it is a
    /// read, or writes the same bytes.
    ///
    /// # Errors
    /// Fails if `len` is larger than the namespace, if a command fails, or if the controller stays
    /// lost for 60 s.
    pub fn transfer(&mut self, len: u64, direction: Direction) -> Result<[u8; 32]> {
        let namespace = self.controller.namespace;
        if len > namespace.size() {
            let what = format!("the namespace has only {} bytes", namespace.size());
            return Err(Error::Target(what));
        }
        let transfer = Transfer::new(len, direction, namespace);
        while let Err(error) = self.controller.with_io_queues(|queue| transfer.run(queue)) {
            self.reconnect(error)?;
            self.repeated += mem::take(&mut *lock(&transfer.returned));
        }
        self.controller.flush()?;
        let digest = transfer.digest.into_inner();
        let digest = digest.unwrap_or_else(PoisonError::into_inner);
        Ok(digest.sha256.finalize().into())
    }

    /// Replaces the controller after `error`.
    fn reconnect(&mut self, mut error: Error) -> Result<()> {
        let lost = Instant::now();
        eprintln!("{error}");
        self.controller.abandon();
        while error.is_lost() && lost.elapsed() < CONTROLLER_LOSS_TIMEOUT {
            thread::sleep(RECONNECT_DELAY);
            match Controller::connect(&self.subsystem) {
                Ok(controller) => {
                    self.controller = controller;
                    self.reconnects += 1;
                    eprintln!("reconnected after {} ms", lost.elapsed().as_millis());
                    return Ok(());
                }
                Err(failure) => error = failure,
            }
        }
        Err(error)
    }
}

/// A transfer by several queues, in chunks of one command each.
#[derive(Debug)]
struct Transfer {
    direction: Direction,
    namespace: Namespace,
    len: u64,
    /// Positions of the remaining chunks, the next one last.
    remaining: Mutex<Vec<u64>>,
    /// Number of chunks in flight on lost connections.
    returned: Mutex<usize>,
    digest: Mutex<OrderedDigest>,
}

impl Transfer {
    fn new(len: u64, direction: Direction, namespace: Namespace) -> Self {
        let mut positions: Vec<u64> = (0..len).step_by(namespace.max_transfer).collect();
        positions.reverse();
        Self {
            direction,
            namespace,
            len,
            remaining: Mutex::new(positions),
            returned: Mutex::default(),
            digest: Mutex::default(),
        }
    }

    /// Transfers chunks until none remains. If it fails, the chunks in flight remain.
    fn run(&self, queue: &mut Queue) -> Result<()> {
        let in_flight = RefCell::new(vec![None; queue.depth()]);
        let chunk_len = |position| {
            let remaining = usize::try_from(self.len - position).unwrap_or(usize::MAX);
            remaining.min(self.namespace.max_transfer)
        };
        let result = queue.run(
            |slot, data| {
                let position = lock(&self.remaining).pop();
                in_flight.borrow_mut()[slot] = position;
                let Some(position) = position else {
                    return Ok(None);
                };
                let len = chunk_len(position);
                if let Direction::Write(seed) = self.direction {
                    let bytes = pattern(seed, position, len);
                    data.write(0, &bytes)?;
                    lock(&self.digest).add(position, bytes);
                }
                Ok(Some(self.namespace.command(self.direction, position, len)))
            },
            |slot, data, _| {
                let position = in_flight.borrow_mut()[slot].take();
                if let (Some(position), Direction::Read) = (position, self.direction) {
                    let mut bytes = vec![0; chunk_len(position)];
                    data.read(0, &mut bytes)?;
                    lock(&self.digest).add(position, bytes);
                }
                Ok(())
            },
        );
        let in_flight: Vec<u64> = in_flight.into_inner().into_iter().flatten().collect();
        *lock(&self.returned) += in_flight.len();
        lock(&self.remaining).extend(in_flight);
        result
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the bytes that are written at a position.
fn pattern(seed: u64, position: u64, len: usize) -> Vec<u8> {
    let mut state = (seed << 40 ^ position) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = xorshift(state);
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A digest of chunks that arrive in any order, some of them twice.
#[derive(Debug, Default)]
struct OrderedDigest {
    sha256: Sha256,
    next: u64,
    /// Chunks behind a gap.
    early: BTreeMap<u64, Vec<u8>>,
}

impl OrderedDigest {
    fn add(&mut self, position: u64, bytes: Vec<u8>) {
        if position >= self.next {
            self.early.insert(position, bytes);
        }
        while let Some(bytes) = self.early.remove(&self.next) {
            self.sha256.update(&bytes);
            self.next += bytes.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_needs_no_order_and_ignores_repetitions() {
        let mut digest = OrderedDigest::default();
        for (position, bytes) in [(3, "def"), (6, "g"), (0, "abc"), (3, "def"), (0, "abc")] {
            digest.add(position, bytes.into());
        }
        assert_eq!(digest.next, 7);
        assert!(digest.early.is_empty());
        assert_eq!(digest.sha256.finalize(), Sha256::digest("abcdefg"));
    }

    #[test]
    fn a_pattern_depends_on_seed_and_position() {
        assert_eq!(pattern(1, 0, 12), pattern(1, 0, 16)[..12]);
        assert_ne!(pattern(1, 4096, 8), pattern(1, 8192, 8));
        assert_ne!(pattern(0, 4096, 8), pattern(1, 4096, 8));
    }

    #[test]
    fn chunks_are_in_order_and_cover_the_transfer() {
        let namespace = Namespace {
            nsid: 1,
            blocks: 8,
            block_len: 512,
            max_transfer: 1024,
        };
        let transfer = Transfer::new(2560, Direction::Read, namespace);
        assert_eq!(*lock(&transfer.remaining), [2048, 1024, 0]);
    }
}
