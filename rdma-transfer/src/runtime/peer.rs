//! The connection to a peer, and the steps that the threads of an engine perform for it.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

use ibverbs::RemoteMemory;

use crate::device::Step;
use crate::device::nic::Handler;
use crate::device::queue::Queue;
use crate::failure::{Failure, lock};
use crate::protocol::message::Message;
use crate::protocol::signal::Poll;
use crate::runtime::shared::Core;
use crate::runtime::state::State;

/// Maximum number of control messages that are handled before those of the next peer. Handling them
/// takes about as long as waking the thread for a message, so that a peer that sends without pause
/// hardly delays the others.
pub(crate) const MAX_MESSAGES: usize = 16;

/// The connection to a peer.
pub(crate) struct PeerInner {
    pub(crate) core: Arc<Core>,
    pub(crate) this: Weak<Self>,
    pub(crate) state: Mutex<State>,
    /// A path of a disconnected peer was closed, or messages of the peer have arrived.
    pub(crate) changed: Condvar,
    pub(crate) control: Option<Arc<OwnedFd>>,
}

impl PeerInner {
    /// Handles the next message of the peer. Returns `false` if there is none. A message that other
    /// threads may wait for sets `concerns_others`.
    fn handle_message(&self, now: Instant, concerns_others: &mut bool) -> bool {
        let mut state = lock(&self.state);
        if !state.can_receive(now) {
            return false;
        }
        let message = state.receive(now);
        let has_message = message.is_some();
        if let Some(message) = message {
            *concerns_others |= !matches!(message, Message::Received { .. });
            state.handle(&self.core, message, now);
        }
        has_message
    }

    /// Destroys the queue pairs of this side, and ends the transfers.
    pub(crate) fn disconnect(&self, reason: &Failure) {
        let now = {
            let mut state = lock(&self.state);
            state.disconnect(reason);
            state.now.unwrap_or_else(Instant::now)
        };
        self.changed.notify_all();
        for device in 0..self.core.nics.len() {
            self.poll(device, now);
        }
        // A thread may be destroying one.
        let state = lock(&self.state);
        let closed = self
            .changed
            .wait_while(state, |state| !state.is_closed())
            .unwrap_or_else(PoisonError::into_inner);
        drop(closed);
    }

    /// Performs the steps of a path, until it waits for something.
    fn run_path(&self, number: usize, now: Instant) {
        let mut state = lock(&self.state);
        loop {
            state.advance(&self.core, number, now);
            let ended = state.ended.is_some();
            let Some(path) = state.paths.get_mut(number) else {
                return;
            };
            let device = path.device;
            let nic = &self.core.nics[device];
            match path.next_step(now, ended) {
                Step::Wait => break,
                Step::Close => {
                    state.closed(&self.core, number, now);
                    self.changed.notify_all();
                }
                Step::Create => {
                    let accepts = state.accepts;
                    drop(state);
                    let created = nic.usable().and_then(|(open, path)| {
                        let options = &self.core.options;
                        let queue = Queue::create(device, &open, path, options, accepts)?;
                        let address = queue.address()?;
                        Ok((queue, address))
                    });
                    state = lock(&self.state);
                    if let Ok((queue, _)) = &created {
                        let this: Weak<Self> = self.this.clone();
                        nic.add(queue.cq_id(), this, number);
                    }
                    state.created(number, created, now);
                }
                Step::Connect(mut queue, address) => {
                    drop(state);
                    let connected = queue.connect(&address);
                    let must_wait = matches!(connected, Ok(false));
                    state = lock(&self.state);
                    state.connected(number, queue, connected, now);
                    if must_wait {
                        break;
                    }
                }
                Step::Destroy(mut queue, waiting) => {
                    drop(state);
                    nic.remove(queue.cq_id());
                    let events = queue.drain();
                    state = lock(&self.state);
                    state.drained(&self.core, number, &mut queue, events, waiting);
                    drop(state);
                    let destroyed = queue.destroy();
                    state = lock(&self.state);
                    if let Err(error) = destroyed {
                        state.disconnect(&Failure::from(&error));
                    }
                    state.closed(&self.core, number, now);
                    self.changed.notify_all();
                }
            }
        }
    }
}

impl Poll for PeerInner {
    fn poll_for_caller(&self) {
        if !self.core.options.manual {
            lock(&self.state).poll_for_caller(&self.core);
        }
    }
}

impl Handler for PeerInner {
    fn poll(&self, device: usize, now: Instant) {
        let paths: Vec<usize> = {
            let mut state = lock(&self.state);
            state.tick(&self.core, now);
            let on_device = state.paths.iter().filter(|path| path.device == device);
            on_device.map(|path| path.number).collect()
        };
        for path in paths {
            self.run_path(path, now);
        }
    }

    fn poll_path(&self, path: usize, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let queue = state.paths.get_mut(path).and_then(|path| path.queue());
        if queue.is_some_and(Queue::note_event) {
            return false;
        }
        drop(state);
        self.run_path(path, now);
        true
    }

    fn fail_path(&self, path: usize, reason: &Failure) {
        if let Some(path) = lock(&self.state).paths.get_mut(path) {
            path.fail(reason);
        }
    }

    fn poll_control(&self, now: Instant) -> bool {
        let (mut messages, mut concerns_others) = (0, false);
        // Callers of the program get the lock after each message.
        while messages < MAX_MESSAGES && self.handle_message(now, &mut concerns_others) {
            messages += 1;
        }
        let (has_ended, is_ending) = {
            let state = lock(&self.state);
            let has_ended = state.ended.is_some();
            (has_ended, has_ended && !state.is_closed())
        };
        if concerns_others || has_ended {
            self.changed.notify_all();
        }
        if concerns_others || is_ending {
            self.core.nics.iter().for_each(|nic| nic.waker.wake());
        }
        messages == MAX_MESSAGES
    }

    fn control(&self) -> Option<Arc<OwnedFd>> {
        let can_receive = lock(&self.state).can_receive(Instant::now());
        self.control.clone().filter(|_| can_receive)
    }

    fn send_key(&self, region: u64, device: usize, key: RemoteMemory) {
        lock(&self.state).send(&Message::Key {
            region,
            device,
            key,
        });
    }

    fn is_busy(&self) -> bool {
        let mut state = lock(&self.state);
        !state.pending.is_empty()
            || state.paths.iter_mut().any(|path| {
                !path.is_ready() || path.queue().is_some_and(|queue| queue.in_flight() > 0)
            })
    }
}
