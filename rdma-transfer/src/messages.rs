//! The messages between two engines, and what each one changes.

use std::io;
use std::time::Instant;

use ibverbs::{Error, ErrorKind, Result};

use crate::control::{Message, Unknown, VERSION};
use crate::failure::{Failure, lock};
use crate::nic::backoff;
use crate::path::{Link, Path};
use crate::queue::Queue;
use crate::shared::Core;
use crate::state::State;

/// Maximum number of paths to a peer, and of its keys that were replaced. They bound the memory
/// that a peer can make this engine use.
pub(crate) const MAX_PATHS: usize = 1 << 12;
const MAX_KEYS: usize = 1 << 20;
/// The same for the regions that it offers, and the length of their names in bytes.
const MAX_OFFERS: usize = 1 << 12;
pub(crate) const MAX_NAME: usize = 256;

impl State {
    pub(crate) fn send(&mut self, message: &Message) {
        let sent = message
            .to_bytes()
            .and_then(|bytes| self.control.send(bytes));
        if let Err(error) = sent {
            self.control_failed(&error);
        }
    }

    pub(crate) fn receive(&mut self) -> Option<Message> {
        let received = self.control.receive();
        let message =
            received.and_then(|bytes| bytes.as_deref().map(Message::from_bytes).transpose());
        message.unwrap_or_else(|error| {
            self.control_failed(&error);
            None
        })
    }

    fn control_failed(&mut self, error: &io::Error) {
        let what = format!("the control connection was lost: {error}");
        self.end(&Failure::new(ErrorKind::Disconnected, &what));
    }

    pub(crate) fn handle(&mut self, core: &Core, message: Message, now: Instant) {
        if let Err(error) = self.try_handle(core, message, now) {
            self.end(&Failure::from(&error));
        }
    }

    fn try_handle(&mut self, core: &Core, message: Message, now: Instant) -> Result<()> {
        match message {
            Message::Hello {
                version,
                random,
                devices,
                queue_pairs,
            } => {
                self.accepts = self.random > random;
                return self.hello(core, version, devices, queue_pairs, now);
            }
            Message::Up {
                path,
                epoch,
                address,
            } => {
                if let Some(path) = self.path(path, epoch)? {
                    path.remote.address = Some(address);
                }
            }
            Message::Ready { path, epoch } => {
                if let Some(path) = self.path(path, epoch)? {
                    path.remote.is_connected = true;
                }
            }
            Message::Down {
                path: number,
                epoch,
                unknown,
            } => {
                if let Some(path) = self.path(number, epoch)? {
                    path.closed_by_peer = Some(unknown);
                    self.settle(core, number);
                }
            }
            Message::Settled { path, epoch, known } => {
                let is_closed = |path: &mut Path| matches!(path.link, Link::Closed);
                if self.path(path, epoch)?.is_some_and(is_closed) {
                    self.settled(core, path, &known, now);
                }
            }
            Message::Received { path, epoch, count } => {
                self.received(core, path, epoch, count, now)?;
            }
            Message::Abandoned { transfer } => self.arrivals.abandon(transfer),
            Message::Key {
                region,
                device,
                key,
            } => {
                if self.replaced.len() >= MAX_KEYS || device >= self.remote_devices {
                    return Err(malformed("a key that this side cannot keep"));
                }
                self.replaced.insert((region, device), key);
            }
            Message::Offer { name, region } => {
                let is_full = self.offers.len() >= MAX_OFFERS && !self.offers.contains_key(&name);
                let has_keys = region.keys.len() == self.remote_devices;
                if is_full || !has_keys || name.len() > MAX_NAME {
                    return Err(malformed("a region that this side cannot keep"));
                }
                self.offers.insert(name, region);
            }
            Message::Bye => {
                let what = "the peer has disconnected";
                self.end(&Failure::new(ErrorKind::Disconnected, what));
            }
        }
        Ok(())
    }

    fn hello(
        &mut self,
        core: &Core,
        version: u32,
        devices: usize,
        queue_pairs: usize,
        now: Instant,
    ) -> Result<()> {
        if version != VERSION {
            let what =
                format!("the peer has version {version} of the protocol, expected {VERSION}");
            return Err(Error::new(ErrorKind::Unsupported, "connect", what));
        }
        let here = core.nics.len();
        let count = devices.saturating_mul(queue_pairs);
        let count = count.max(here.saturating_mul(core.options.queue_pairs));
        if devices == 0 || count > MAX_PATHS || !self.paths.is_empty() {
            return Err(malformed("its first message"));
        }
        self.remote_devices = devices;
        let paths = 0..count;
        self.paths = paths
            .map(|number| Path::new(number, number % here, now))
            .collect();
        Ok(())
    }

    /// Returns a path that a message names, if the epoch is the current one.
    fn path(&mut self, number: usize, epoch: u64) -> Result<Option<&mut Path>> {
        let path = self.paths.get_mut(number);
        let path = path.ok_or_else(|| malformed("a path that does not exist"))?;
        Ok((path.epoch == epoch).then_some(path))
    }

    /// Answers the peer's `Down`, if both sides have closed the path.
    pub(crate) fn settle(&mut self, core: &Core, number: usize) {
        let path = &mut self.paths[number];
        if !matches!(path.link, Link::Closed) {
            return;
        }
        let epoch = path.epoch;
        let Some(unknown) = path.closed_by_peer.take() else {
            return;
        };
        let mut known = unknown;
        let arrivals = &self.arrivals;
        known
            .jobs
            .retain(|&(transfer, job)| arrivals.has(transfer, job));
        let registered = lock(&core.owner.releases.registered);
        known.regions.retain(|region| !registered.contains(region));
        drop(registered);
        self.send(&Message::Settled {
            path: number,
            epoch,
            known,
        });
    }

    /// Ends the epoch of a path that both sides have closed. Jobs that have not arrived continue
    /// on other paths.
    fn settled(&mut self, core: &Core, number: usize, known: &Unknown, now: Instant) {
        let path = &mut self.paths[number];
        path.begin_epoch();
        let unconfirmed = std::mem::take(&mut path.unconfirmed);
        let salt = path.epoch << 16 | number as u64;
        path.retry_at = now + backoff(&core.options, path.failures.saturating_sub(1), salt);
        let unsettled = std::mem::take(&mut path.unsettled);
        for transfer in unconfirmed {
            self.send(&Message::Abandoned { transfer });
        }
        for waiting in unsettled {
            let transfer = &waiting.job.transfer;
            let has_arrived = |id| known.jobs.contains(&id);
            if waiting.job.id().is_some_and(has_arrived) {
                transfer.progress.add_bytes(waiting.bytes());
                self.end_job(&waiting.job);
                continue;
            }
            if known.regions.contains(&transfer.remote.id) {
                let what = "the peer has released the region";
                let _ = transfer
                    .failure
                    .set(Failure::new(ErrorKind::Completion, what));
            }
            self.assign(waiting);
        }
        self.post_all(now);
    }

    /// Tells the peer how many messages have arrived.
    pub(crate) fn report_received(&mut self, number: usize) {
        let path = &mut self.paths[number];
        let epoch = path.epoch;
        let count = path.queue().and_then(Queue::take_received);
        if let Some(count) = count {
            self.send(&Message::Received {
                path: number,
                epoch,
                count,
            });
        }
    }

    /// Processes the report of the peer about messages that have arrived.
    fn received(
        &mut self,
        core: &Core,
        number: usize,
        epoch: u64,
        count: u64,
        now: Instant,
    ) -> Result<()> {
        // The queue pair can be closing.
        let Some(queue) = self.path(number, epoch)?.and_then(Path::queue) else {
            return Ok(());
        };
        let mut events = Vec::new();
        queue.acknowledge(count, now, |event| events.push(event))?;
        self.process(core, number, events, now);
        self.post(number, now);
        Ok(())
    }
}

fn malformed(what: &str) -> Error {
    let what = format!("the peer has sent a wrong control message: {what}");
    Error::new(ErrorKind::Malformed, "transfer", what)
}
