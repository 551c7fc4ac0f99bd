//! Peers: connected engines, and transfers with them.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use ibverbs::{Error, ErrorKind, Result};

use crate::api::transfer::Transfer;
use crate::deferred;
use crate::device::{Job, Path, PeerTransfer, Waiting};
use crate::failure::{Failure, lock};
use crate::memory::region::Region;
use crate::options::TransferOptions;
use crate::protocol::arrivals::MAX_JOBS;
use crate::protocol::control::Control;
use crate::protocol::message::{MAX_NAME, Message, VERSION};
use crate::protocol::path::PathStatus;
use crate::protocol::progress::Progress;
use crate::protocol::remote_region::RemoteRegion;
use crate::protocol::signal::Poll;
use crate::protocol::stripe::{Span, distribute};
use crate::protocol::work::Operation;
use crate::runtime::peer::PeerInner;
use crate::runtime::shared::{Core, Shared};
use crate::runtime::state::State;

/// A connected engine. Clones refer to the same connection, which ends when the last one is
/// dropped.
///
/// # Example
/// ```no_run
/// use rdma_transfer::{Peer, Region, Result, Span, TransferOptions};
/// use std::time::Duration;
/// # fn f(peer: &Peer, region: &Region) -> Result<()> {
/// const LIMIT: Duration = Duration::from_secs(10);
/// let cache = peer.remote("cache", LIMIT)?;
/// let page = [Span::new(0, 8192, 4096)];
/// peer.read(region, &cache, &page, TransferOptions::new())?.wait(LIMIT)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Peer(Arc<Handle>);

/// The handle of the program. The threads of the engine have no handle, so dropping the last one
/// destroys the queue pairs before it returns.
struct Handle {
    inner: Arc<PeerInner>,
    shared: Arc<Shared>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let reason = Failure::new(ErrorKind::Disconnected, "the peer was dropped");
        deferred::run(|| self.inner.disconnect(&reason));
    }
}

/// A checked transfer with one peer that was not submitted yet.
pub(crate) struct Plan<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) remote: &'a RemoteRegion,
    pub(crate) spans: &'a [Span],
}

impl Peer {
    pub(crate) fn connect(shared: &Arc<Shared>, control: Box<dyn Control>) -> Result<Self> {
        let core = &shared.core;
        let clone = |fd: BorrowedFd<'_>| fd.try_clone_to_owned();
        let descriptor = control.descriptor().map(clone).transpose();
        let descriptor =
            descriptor.map_err(|error| Error::new(ErrorKind::Os, "connect", error.to_string()))?;
        let mut state = State::new(control, &core.immediates);
        state.send(&Message::Hello {
            version: VERSION,
            random: state.random,
            devices: core.nics.len(),
            queue_pairs: core.options.queue_pairs,
        });
        let inner = Arc::new_cyclic(|this| PeerInner {
            core: Arc::clone(core),
            this: Weak::clone(this),
            state: Mutex::new(state),
            changed: Condvar::new(),
            control: descriptor.map(Arc::new),
        });
        let handler: Weak<PeerInner> = Arc::downgrade(&inner);
        core.add_peer(handler);
        core.wake();
        Ok(Self(Arc::new(Handle {
            inner,
            shared: Arc::clone(shared),
        })))
    }

    /// Writes ranges of `region` to `remote`. With an immediate, the peer counts the transfer when
    /// all bytes have arrived ([`Engine::imm_counter`](crate::Engine::imm_counter)).
    ///
    /// A transfer without bytes is allowed, for example to deliver an immediate alone. The bytes of
    /// several transfers can arrive in any order. A transfer that begins before the first path is
    /// connected waits for it.
    ///
    /// # Errors
    /// Nothing was written then:
    /// - [`ErrorKind::InvalidInput`]: a range is out of bounds, or the options name a device that
    ///   the engine does not have.
    /// - [`ErrorKind::Mismatch`]: `region` belongs to another engine.
    /// - [`ErrorKind::QueueFull`]: the transfers with an immediate that are in flight to the peer,
    ///   this one included, have more than 65,536 jobs. A job has up to 64 requests.
    /// - The reason of the disconnection if the peer was disconnected.
    pub fn write(
        &self,
        region: &Region,
        remote: &RemoteRegion,
        spans: &[Span],
        options: TransferOptions,
    ) -> Result<Transfer> {
        let plan = Plan {
            peer: self,
            remote,
            spans,
        };
        submit(Operation::Write, &[plan], region, options)
    }

    /// Reads ranges of `remote` into `region`. The peer does not notice it.
    ///
    /// # Errors
    /// Those of [`write`](Self::write), and:
    /// - [`ErrorKind::InvalidInput`]: the options have an immediate.
    /// - [`ErrorKind::Unsupported`]: `region` is read-only.
    pub fn read(
        &self,
        region: &Region,
        remote: &RemoteRegion,
        spans: &[Span],
        options: TransferOptions,
    ) -> Result<Transfer> {
        if options.imm.is_some() {
            let what = "only a write has an immediate";
            return Err(Error::new(ErrorKind::InvalidInput, "read", what));
        }
        if !region.is_writable() {
            let what = "the region is read-only";
            return Err(Error::new(ErrorKind::Unsupported, "read", what)
                .with_help("read into a region of Engine::alloc"));
        }
        let plan = Plan {
            peer: self,
            remote,
            spans,
        };
        submit(Operation::Read, &[plan], region, options)
    }

    /// Lets the peer find a region by a name of at most 256 bytes. A name that is used again
    /// replaces the earlier region. The peer limits the number of names
    /// ([`EngineOptions::max_regions`](crate::EngineOptions::max_regions)).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`]: the name is too long.
    pub fn offer(&self, name: &str, region: &Region) -> Result<()> {
        if name.len() > MAX_NAME {
            let what = format!(
                "a name of {} bytes; at most {MAX_NAME} are allowed",
                name.len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, "offer a region", what));
        }
        lock(&self.0.inner.state).send(&Message::Offer {
            name: name.to_owned(),
            region: region.remote(),
        });
        Ok(())
    }

    /// Waits for the region that the peer [offers](Self::offer) by this name, and returns it.
    ///
    /// # Errors
    /// - [`ErrorKind::TimedOut`]: the peer has offered none by this name.
    /// - The reason of the disconnection if the peer was disconnected.
    pub fn remote(&self, name: &str, timeout: Duration) -> Result<RemoteRegion> {
        let inner = &self.0.inner;
        let is_missing =
            |state: &mut State| state.ended.is_none() && !state.offers.contains_key(name);
        let (state, _) = inner
            .changed
            .wait_timeout_while(lock(&inner.state), timeout, is_missing)
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(region) = state.offers.get(name) {
            return Ok(region.clone());
        }
        if let Some(failure) = &state.ended {
            return Err(failure.to_error("find a region"));
        }
        let what = format!("the peer has offered no region {name:?} in {timeout:?}");
        Err(Error::new(ErrorKind::TimedOut, "find a region", what))
    }

    /// Destroys the queue pairs, which ends the access of the devices of this side to the memory of
    /// all transfers with the peer. These transfers fail. The peer does the same when it
    /// receives the message about it.
    pub fn disconnect(&self) {
        let what = "this side has disconnected the peer";
        let reason = Failure::new(ErrorKind::Disconnected, what);
        deferred::run(|| self.0.inner.disconnect(&reason));
    }

    /// Returns `false` if the peer was disconnected by either side, or its control connection was
    /// lost. No device of this side accesses memory for it then.
    pub fn is_connected(&self) -> bool {
        let state = lock(&self.0.inner.state);
        state.ended.is_none() || !state.is_closed()
    }

    /// Returns the state of each path to the peer. The list is empty until the peer has answered.
    pub fn paths(&self) -> Vec<PathStatus> {
        let inner = &self.0.inner;
        let mut state = lock(&inner.state);
        let status = |path: &mut Path| PathStatus {
            device: inner.core.nics[path.device].name.clone(),
            is_ready: path.is_ready(),
            failures: path.failures,
            last_failure: path.last_failure.as_ref().map(ToString::to_string),
            in_flight: path.queue().map_or(0, |queue| queue.in_flight()),
        };
        state.paths.iter_mut().map(status).collect()
    }
}

/// Submits transfers with several peers as one. Nothing is transferred if one of them is invalid.
pub(crate) fn submit(
    operation: Operation,
    plans: &[Plan<'_>],
    region: &Region,
    options: TransferOptions,
) -> Result<Transfer> {
    for plan in plans {
        plan.check(region, options)?;
    }
    let jobs = plans.iter().map(|plan| plan.jobs(options));
    let jobs = jobs.collect::<Result<Vec<_>>>()?;
    let bytes = plans.iter().flat_map(|plan| plan.spans);
    let bytes = bytes.map(|span| span.len as u64).sum();
    let count = jobs.iter().map(Vec::len).sum();
    let cancels = plans.first().map(|plan| &plan.core().cancels);
    let progress = Progress::new(count, bytes, cancels.cloned().unwrap_or_default());
    deferred::run(|| {
        for (plan, jobs) in plans.iter().zip(jobs) {
            if !jobs.is_empty() {
                plan.launch(operation, jobs, region, options, &progress);
            }
        }
    });
    let window = plans.first().map(|plan| &plan.core().window);
    let window = window.cloned().unwrap_or_default();
    let peer = |plan: &Plan<'_>| -> Weak<dyn Poll> { plan.peer.0.inner.this.clone() };
    Ok(Transfer::new(
        progress,
        plans.iter().map(peer).collect(),
        window,
    ))
}

impl Plan<'_> {
    fn core(&self) -> &Core {
        &self.peer.0.shared.core
    }

    fn check(&self, region: &Region, options: TransferOptions) -> Result<()> {
        let Handle { inner, shared } = &*self.peer.0;
        if let Some(failure) = &lock(&inner.state).ended {
            return Err(failure.to_error("transfer"));
        }
        if region.0.engine != shared.core.owner.id {
            let what = "the region belongs to another engine than the peer";
            return Err(Error::new(ErrorKind::Mismatch, "transfer", what));
        }
        let devices = shared.core.nics.len();
        if let Some(device) = options.device.filter(|&device| device >= devices) {
            let what = format!("device {device}; the engine has {devices}, from 0");
            return Err(Error::new(ErrorKind::InvalidInput, "transfer", what));
        }
        let (local, remote) = (region.len(), self.remote.len());
        match self
            .spans
            .iter()
            .find(|span| !span.is_within(local, remote))
        {
            None => Ok(()),
            Some(span) => {
                let what = format!(
                    "{span:?} is out of bounds; the region has {local} bytes, the remote region \
                     {remote}"
                );
                Err(Error::new(ErrorKind::InvalidInput, "transfer", what))
            }
        }
    }

    /// Divides the transfer among the paths that are ready, or will be. Returns the pieces of each
    /// job with the position of its path among these.
    fn jobs(&self, options: TransferOptions) -> Result<Vec<(usize, VecDeque<Span>)>> {
        let mut state = lock(&self.peer.0.inner.state);
        let paths = state.eligible(options.device).len().max(1);
        let first = state.next_path;
        state.next_path = first.wrapping_add(1);
        let mut jobs = distribute(self.spans, self.core().stripe, paths, first);
        if jobs.is_empty() && options.imm.is_some() {
            jobs.push((first % paths, VecDeque::new()));
        }
        if options.imm.is_some() && state.jobs_with_notice + jobs.len() > MAX_JOBS {
            let what = format!(
                "{} jobs of transfers with an immediate are in flight, and this one has {}; at \
                 most {MAX_JOBS} are allowed",
                state.jobs_with_notice,
                jobs.len()
            );
            return Err(Error::new(ErrorKind::QueueFull, "transfer", what)
                .with_help("wait for transfers in flight, or divide this one"));
        }
        Ok(jobs)
    }

    fn launch(
        &self,
        operation: Operation,
        jobs: Vec<(usize, VecDeque<Span>)>,
        region: &Region,
        options: TransferOptions,
        progress: &Arc<Progress>,
    ) {
        let inner = &self.peer.0.inner;
        let mut state = lock(&inner.state);
        state.jobs_with_notice += jobs.len() * usize::from(options.imm.is_some());
        let number = state.next_transfer;
        state.next_transfer += u64::from(options.imm.is_some());
        let count = u32::try_from(jobs.len()).unwrap_or(u32::MAX);
        let transfer = Arc::new(PeerTransfer {
            operation,
            notices: options.imm.is_some(),
            number,
            value: options.imm.unwrap_or_default(),
            jobs: count,
            unfinished: AtomicU32::new(count),
            region: Arc::clone(&region.0),
            remote: self.remote.clone(),
            device: options.device,
            progress: Arc::clone(progress),
            failure: OnceLock::new(),
        });
        // One that no clock reaches is no limit.
        let now = state.now;
        let at = |time| now.unwrap_or_else(Instant::now).checked_add(time);
        let deadline = options.deadline.and_then(at);
        if let Some(deadline) = deadline {
            state.deadlines.add(deadline, &transfer);
        }
        let paths = state.eligible(options.device);
        for (job, (share, spans)) in jobs.into_iter().enumerate() {
            let job = Arc::new(Job {
                transfer: Arc::clone(&transfer),
                number: u32::try_from(job).unwrap_or(u32::MAX),
            });
            let path = (!paths.is_empty()).then(|| paths[share % paths.len()]);
            state.add(path, Waiting::new(job, spans));
        }
        for path in paths {
            state.post(path);
        }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("paths", &self.paths())
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "peer_tests.rs"]
mod tests;
