//! Groups of messengers that share their objects.

use std::sync::Arc;

use ibverbs::{CqOptions, Error, ErrorKind, ProtectionDomain, QueuePair, Rc, Result, SrqOptions};
use rdma_types::setters;

use super::codec::{GREETING_LEN, Greeting, VERB};
use super::driver::{Driver, send_options};
use super::flow::{CONTROLS, greeting};
use super::lease::{Lease, Leases};
use super::receives::SharedReceives;
use super::state::Pools;
use rdmacm::EventChannel;

/// Options of a [`MessengerGroup`].
///
/// # Example
/// ```
/// use messenger::GroupOptions;
/// let options = GroupOptions::new().connections(1000).depth(2);
/// assert_eq!(options.buffer_len, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupOptions {
    /// Maximum number of connections. The group registers memory for all of them, about
    /// `(2 * depth + 6) * buffer_len` bytes for each. Default: `64`.
    pub connections: u16,
    /// See [`MessengerOptions::max_len`](crate::MessengerOptions::max_len). Default: `1048576`.
    pub max_len: usize,
    /// See [`MessengerOptions::buffer_len`](crate::MessengerOptions::buffer_len). Default: `4096`.
    pub buffer_len: usize,
    /// See [`MessengerOptions::depth`](crate::MessengerOptions::depth). Default: `4`.
    pub depth: u16,
}

impl GroupOptions {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            connections: 64,
            max_len: 1 << 20,
            buffer_len: 4096,
            depth: 4,
        }
    }
}

impl Default for GroupOptions {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    GroupOptions {
        connections: u16,
        max_len: usize,
        buffer_len: usize,
        depth: u16,
    }
}

/// Messengers that share a protection domain, a completion queue, a shared receive queue, an event
/// channel and their buffers. A connection of a group takes a queue pair, and no file descriptor.
///
/// The shared receive queue holds all receives that its messengers have promised to their peers, so
/// that one connection cannot use up those of another.
///
/// Messengers share queues only in a group. One poll serves all its queue pairs, and the size of
/// the queues follows from what the messengers have promised, so a queue that an application also
/// uses for other requests could overflow. A protection domain of the application can be used
/// ([`MessengerOptions::pd`](crate::MessengerOptions::pd)), and without a group also an event
/// channel ([`Messenger::migrate`](crate::Messenger::migrate)).
///
/// # Example
/// ```no_run
/// use messenger::{GroupOptions, MessengerGroup};
/// use messenger::{Messenger, MessengerOptions};
/// use rdmacm::Listener;
/// use std::time::Duration;
///
/// const LIMIT: Duration = Duration::from_secs(5);
/// let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// let group = MessengerGroup::new(&pd, &GroupOptions::new().connections(1000))?;
/// let options = MessengerOptions::new().group(&group);
/// let listener = Listener::bind("10.99.0.1:7471".parse()?, 64)?;
/// let mut clients = Vec::new();
/// while let Some(request) = listener.next_request(None)? {
///     clients.push(Messenger::accept(request, &options, LIMIT)?);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct MessengerGroup(Arc<Group>);

#[derive(Debug)]
struct Group {
    driver: Arc<Driver>,
    pd: ProtectionDomain,
    receives: Arc<SharedReceives>,
    pools: Pools,
    greeting: Greeting,
    options: GroupOptions,
    leases: Arc<Leases>,
}

impl MessengerGroup {
    /// Creates the objects of a group in a protection domain. Its messengers must use the same
    /// device.
    ///
    /// # Errors
    /// [`ErrorKind::LockedMemory`] if the memory could not be pinned. [`ErrorKind::InvalidInput`]
    /// if the device does not support queues of that size.
    pub fn new(pd: &ProtectionDomain, options: &GroupOptions) -> Result<Self> {
        let context = pd.context();
        let connections = u32::from(options.connections.max(1));
        let depth = u32::from(options.depth.max(1));
        let greeting = greeting(options.max_len, options.buffer_len, options.depth)?;
        let controls = u32::from(CONTROLS);
        let channel = context.create_comp_channel()?;
        let entries = connections * (depth + controls + greeting.receives);
        let cq = context.create_cq(CqOptions::new().depth(entries).channel(&channel))?;
        let srq_options = SrqOptions::new().max_wr(connections * greeting.receives);
        let pool = |each: u32, len: u32| pd.pool((connections * each) as usize, len as usize);
        let pools = Pools {
            recv: pool(greeting.receives, greeting.receive_len)?,
            send: pool(depth, greeting.receive_len)?,
            control: pd.pool((connections * controls) as usize, GREETING_LEN)?,
        };
        let receives = Arc::new(SharedReceives::new(pd, srq_options, pools.recv.clone())?);
        receives.refill()?;
        let events = EventChannel::create()?;
        let shared = Some((Arc::clone(&receives), events));
        Ok(Self(Arc::new(Group {
            driver: Driver::new(cq, channel, shared)?,
            pd: pd.clone(),
            receives,
            pools,
            greeting,
            options: *options,
            leases: Arc::default(),
        })))
    }

    /// Returns the protection domain of the group.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.0.pd
    }

    /// Returns the number of connections, including those whose messages the application still
    /// keeps.
    pub fn connections(&self) -> usize {
        self.0.leases.count() as usize
    }

    pub(crate) fn driver(&self) -> &Arc<Driver> {
        &self.0.driver
    }

    pub(crate) fn receives(&self) -> &Arc<SharedReceives> {
        &self.0.receives
    }

    pub(crate) fn pools(&self) -> &Pools {
        &self.0.pools
    }

    pub(crate) fn greeting(&self) -> Greeting {
        self.0.greeting
    }

    pub(crate) fn depth(&self) -> u16 {
        self.0.options.depth.max(1)
    }

    /// Creates the queue pair of another connection.
    pub(crate) fn create_qp(&self) -> Result<(QueuePair<Rc>, Arc<Lease>)> {
        let max = u32::from(self.0.options.connections.max(1));
        let Some(lease) = self.0.leases.take(max) else {
            let detail = format!("messenger group: it has {max} connections");
            return Err(Error::new(ErrorKind::LimitReached, VERB, detail)
                .with_help("create the group with more `connections`"));
        };
        let lease = Arc::new(lease);
        let sends = u32::from(self.depth()) + u32::from(CONTROLS);
        let options = send_options(sends, self.depth());
        let qp = self.0.driver.create_member(|cq| {
            self.0
                .receives
                .with(|srq| self.0.pd.create_qp_with_srq::<Rc>(cq, cq, srq, options))
        })?;
        // Buffers of earlier connections may have returned since.
        let refilled = self.0.receives.refill();
        if refilled.is_err() {
            self.0.driver.remove(qp.id());
        }
        refilled.map(|()| (qp, lease))
    }
}
