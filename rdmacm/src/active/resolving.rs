//! Address and route resolution in progress.

use std::fmt;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::{Error, Result};

use crate::address::{Address, PortSpace};
use crate::error::ConnectError;
use crate::event::{CmEventType, EventChannel, IdKey};
use crate::id::{Id, Path};
use crate::progress::{InProgress, already_finished, into_future, sealed::Sealed};
use crate::wait::Deadline;

/// Time that this side waits longer than the kernel, so that the kernel's error arrives first.
const GRACE: Duration = Duration::from_millis(500);

/// Time limit of one address resolution of the kernel, which is started again until the time limit
/// of the application. The kernel can miss that the peer's link-layer address has arrived, and then
/// looks again only at the time limit (docs/drivers.md, fault 60).
const ADDRESS_ATTEMPT: Duration = Duration::from_millis(250);

/// Result type of a resolution.
pub(crate) trait Resolved: Send + Sized {
    const PORT_SPACE: PortSpace;

    fn new(id: Id, path: Path) -> Result<Self>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Address,
    Route,
}

/// An address being resolved to a [`Route`](crate::Route) or a
/// [`DatagramRoute`](crate::datagram::DatagramRoute). The kernel limits the time of each of the two
/// steps.
///
/// # Example
/// ```no_run
/// use rdmacm::active::Resolving;
/// use rdmacm::{InProgress, Resolver, Route};
/// let resolving: Resolving<Route> = Resolver::new("10.99.0.1:7471".parse()?).start()?;
/// // Do other work here.
/// let route = resolving.wait(None)?; // the kernel limits the time
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_resolve_addr")]
#[doc(alias = "rdma_resolve_route")]
pub struct Resolving<R> {
    id: Option<Id>,
    channel: EventChannel,
    key: IdKey,
    step: Step,
    peer: Address,
    source: Option<Address>,
    timeout: Duration,
    /// Time limit of the address resolution.
    address_deadline: Deadline,
    output: PhantomData<fn() -> R>,
}

impl<R> Resolving<R> {
    /// Starts to resolve `peer`.
    pub(crate) fn start(
        id: Id,
        source: Option<Address>,
        peer: Address,
        timeout: Duration,
    ) -> Result<Self> {
        id.resolve_addr(source, peer, timeout.min(ADDRESS_ATTEMPT))?;
        let (channel, key) = (id.channel().clone(), id.key());
        Ok(Self {
            id: Some(id),
            channel,
            key,
            step: Step::Address,
            peer,
            source,
            timeout,
            address_deadline: Deadline::after(timeout),
            output: PhantomData,
        })
    }

    /// Returns the maximum time of both steps.
    pub(crate) fn limit(timeout: Duration) -> Duration {
        timeout.saturating_add(GRACE).saturating_mul(2)
    }

    /// Returns the time limit of the next address resolution, or zero after the last one.
    fn address_attempt(&self) -> Duration {
        let remaining = self.address_deadline.remaining();
        remaining.map_or(ADDRESS_ATTEMPT, |remaining| remaining.min(ADDRESS_ATTEMPT))
    }

    fn verb(&self) -> &'static str {
        match self.step {
            Step::Address => "rdma_resolve_addr",
            Step::Route => "rdma_resolve_route",
        }
    }

    /// Processes the available events. Returns `true` if the route is resolved.
    fn advance(&mut self) -> Result<bool> {
        let id = self
            .id
            .as_ref()
            .ok_or_else(|| already_finished(self.verb(), &self.peer))?;
        while let Some(event) = id.try_event()? {
            match (self.step, event.event_type()) {
                (Step::Address, CmEventType::ADDR_RESOLVED) => {
                    id.resolve_route(self.timeout, self.peer)?;
                    self.step = Step::Route;
                }
                (Step::Route, CmEventType::ROUTE_RESOLVED) => return Ok(true),
                (Step::Address, CmEventType::ADDR_ERROR)
                    if event.status() == -libc::ETIMEDOUT && !self.address_attempt().is_zero() =>
                {
                    id.resolve_addr(self.source, self.peer, self.address_attempt())?;
                }
                _ => return Err(ConnectError::from_event(self.verb(), &self.peer, &event).into()),
            }
        }
        Ok(false)
    }
}

impl<R> Sealed for Resolving<R> {
    const VERB: &'static str = "rdma_resolve_addr";

    fn detail(&self) -> String {
        self.peer.to_string()
    }

    fn id_key(&self) -> IdKey {
        self.key
    }

    fn channel(&self) -> &EventChannel {
        &self.channel
    }
}

into_future!(Resolving<R> where R: Resolved);

#[allow(private_bounds, reason = "only this crate defines result types")]
impl<R: Resolved> InProgress for Resolving<R> {
    type Output = R;
    type Error = Error;

    fn try_finish(&mut self) -> Result<Option<R>> {
        match self.advance() {
            Ok(false) => Ok(None),
            Ok(true) => {
                let verb = self.verb();
                let id = self
                    .id
                    .take()
                    .ok_or_else(|| already_finished(verb, &self.peer))?;
                let path = id.path(verb)?;
                R::new(id, path).map(Some)
            }
            Err(error) => {
                self.id = None;
                Err(error)
            }
        }
    }
}

impl<R> AsFd for Resolving<R> {
    /// Readable when [`try_finish`](InProgress::try_finish) may make progress.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

impl<R> fmt::Debug for Resolving<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolving")
            .field("peer", &self.peer)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
