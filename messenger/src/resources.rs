//! The objects of a messenger that is not connected yet.

use std::sync::Arc;
use std::time::Duration;

use ibverbs::{
    Context, CqOptions, Error, ErrorKind, QueueId, QueuePair, Rc, Result, device::TransportType, wr,
};

use super::codec::{GREETING_LEN, Greeting, VERB};
use super::driver::{Driver, send_options};
use super::endpoint::Endpoint;
use super::flow::{CONTROLS, Flow, greeting};
use super::group::MessengerGroup;
use super::lease::Lease;
use super::options::MessengerOptions;
use super::shared::{Owner, Shared};
use super::state::{Pools, State};
use rdmacm::Connection;

/// The objects of a messenger that is not connected yet.
#[derive(Debug)]
pub(crate) struct Resources {
    driver: Arc<Driver>,
    pools: Pools,
    depth: u16,
    greeting: Greeting,
    poll_time: Duration,
    member: Option<Member>,
}

/// Membership in a group. Dropping it ends the membership of a connection that was not
/// established.
#[derive(Debug)]
struct Member {
    group: MessengerGroup,
    id: QueueId,
    lease: Arc<Lease>,
    is_connected: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.is_connected {
            self.group.driver().remove(self.id);
        }
    }
}

impl Resources {
    /// Creates the objects of a messenger, and its queue pair.
    pub(crate) fn new(
        options: &MessengerOptions<'_>,
        open: impl FnOnce() -> Result<Context>,
    ) -> Result<(Self, QueuePair<Rc>)> {
        if let Some(group) = options.group {
            return Self::in_group(group, options);
        }
        let greeting = greeting(options.max_len, options.buffer_len, options.depth)?;
        let depth = options.depth.max(1);
        let pd = match options.pd {
            Some(pd) => pd.clone(),
            None => open()?.alloc_pd()?,
        };
        let sends = u32::from(depth) + u32::from(CONTROLS) + u32::from(options.requests);
        let channel = pd.context().create_comp_channel()?;
        let entries = sends + greeting.receives;
        let cq_options = CqOptions::new().depth(entries).channel(&channel);
        let cq = pd.context().create_cq(cq_options)?;
        let qp_options = send_options(sends, depth).max_recv_wr(greeting.receives);
        let qp = pd.create_qp::<Rc>(&cq, &cq, qp_options)?;
        let len = greeting.receive_len as usize;
        let pools = Pools {
            recv: pd.pool(greeting.receives as usize, len)?,
            send: pd.pool(depth.into(), len)?,
            control: pd.pool(CONTROLS.into(), GREETING_LEN)?,
        };
        let resources = Self {
            driver: Driver::new(cq, channel, None)?,
            pools,
            depth,
            greeting,
            poll_time: options.poll_time,
            member: None,
        };
        Ok((resources, qp))
    }

    fn in_group(
        group: &MessengerGroup,
        options: &MessengerOptions<'_>,
    ) -> Result<(Self, QueuePair<Rc>)> {
        if options.requests != 0 {
            let detail = "messenger group: requests of the application";
            return Err(Error::new(ErrorKind::InvalidInput, VERB, detail)
                .with_help("create a messenger without a group for READ, WRITE and atomics"));
        }
        let (qp, lease) = group.create_qp()?;
        let resources = Self {
            driver: Arc::clone(group.driver()),
            pools: group.pools().clone(),
            depth: group.depth(),
            greeting: group.greeting(),
            poll_time: options.poll_time,
            member: Some(Member {
                group: group.clone(),
                id: qp.id(),
                lease,
                is_connected: false,
            }),
        };
        Ok((resources, qp))
    }

    /// Returns what must be done before the queue pair of an accepted connection is destroyed that
    /// is not established. The peer's greeting can be in the completion queue of the group.
    pub(crate) fn cleanup(&self) -> Option<impl FnOnce(&mut QueuePair<Rc>) + Send + Sync + use<>> {
        let &Member { ref group, id, .. } = self.member.as_ref()?;
        let (driver, receives) = (Arc::clone(group.driver()), Arc::clone(group.receives()));
        Some(move |qp: &mut QueuePair<Rc>| {
            // No further message uses a receive of the group. A queue pair that cannot change its
            // state receives nothing either. On iWARP the kernel changes it.
            if qp.pd().context().device().transport() != TransportType::IWARP {
                receives.set_may_lack();
                let _ = qp.to_error();
            }
            driver.remove(id);
        })
    }

    /// Posts the first receives. A group has posted them already.
    pub(crate) fn fill(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        if self.member.is_some() {
            return Ok(());
        }
        for _ in 0..Flow::new(self.greeting.receives).receives_needed() {
            if let Some(buf) = self.pools.recv.take() {
                qp.post_recv(wr::recv(buf)).map_err(Error::from)?;
            }
        }
        Ok(())
    }

    /// Creates the messenger of an established connection. The active side sends its greeting.
    pub(crate) fn connected(self, connection: Connection, is_active: bool) -> Result<Arc<Owner>> {
        let Self {
            driver,
            pools,
            depth,
            greeting,
            poll_time,
            member,
        } = self;
        if member.is_none() {
            driver.watch(connection.channel())?;
        }
        let (id, key) = (connection.qp().id(), connection.key());
        let receives = member
            .as_ref()
            .map(|member| member.group.receives().clone());
        let state = State::new(connection, pools, receives, depth, greeting, is_active);
        let lease = member.as_ref().map(|member| Arc::clone(&member.lease));
        let endpoint = Arc::new(Endpoint::new(state, id, key, lease));
        driver.add(&endpoint);
        let owner = Arc::new(Owner(Shared::new(endpoint, driver, poll_time)));
        if let Some(mut member) = member {
            member.is_connected = true;
            owner.0.driver.migrate(&owner.0.endpoint)?;
        }
        Ok(owner)
    }
}
