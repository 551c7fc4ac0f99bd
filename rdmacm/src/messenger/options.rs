//! Options of a messenger, and the objects that it creates.

use std::sync::Arc;

use ibverbs::{
    AccessFlags, Context, CqOptions, Error, ErrorKind, ProtectionDomain, QpOptions, Qpn, QueuePair,
    Rc, Result, wr,
};
use rdma_types::setters;

use super::driver::Driver;
use super::flow::{CONTROLS, MAX_RECEIVES, RESERVE};
use super::group::{Lease, MessengerGroup};
use super::shared::{Owner, Shared};
use super::state::{Pools, State};
use super::wire::{HEADER_LEN, HELLO_LEN, Hello, MIN_RECEIVE_LEN, VERB};
use crate::connection::Connection;
use crate::params::ConnectParams;

/// Options of a [`Messenger`](crate::Messenger).
///
/// A messenger registers about `(2 * depth + 6) * buffer_len` bytes of memory.
///
/// # Example
/// ```no_run
/// use rdmacm::{Messenger, MessengerOptions};
/// use std::time::Duration;
/// let options = MessengerOptions::new().buffer_len(64 << 10).depth(8);
/// let messenger =
///     Messenger::connect("10.99.0.1:7471".parse()?, &options, Duration::from_secs(5))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct MessengerOptions<'a> {
    /// Maximum length of a received message in bytes. A longer message of the peer is an error of
    /// its `send`. Default: `1048576`.
    pub max_len: usize,
    /// Number of payload bytes in each buffer. Longer messages are sent in fragments. At most
    /// `max_len` is used. Default: `4096`.
    pub buffer_len: usize,
    /// Maximum number of buffers in flight in each direction. A sender waits if the peer's
    /// application has not taken so many. Default: `16`.
    pub depth: u16,
    /// Maximum number of requests in flight that the application posts itself with
    /// [`Messenger::with_qp`](crate::Messenger::with_qp). Default: `0`.
    pub requests: u16,
    /// Operations that the peer may perform on registered memory. Messages need none. Default:
    /// `AccessFlags::empty()`.
    pub access: AccessFlags,
    /// Parameters of the connection handshake. Default: [`ConnectParams::new`].
    pub params: ConnectParams<'a>,
    /// Protection domain for the messenger's buffers, which selects the open device too. Without
    /// one, the messenger opens the device. Default: `None`.
    pub pd: Option<&'a ProtectionDomain>,
    /// Group that supplies all objects of the messenger except its queue pair. The group's
    /// `max_len`, `buffer_len`, `depth` and protection domain are used. Default: `None`.
    pub group: Option<&'a MessengerGroup>,
}

impl MessengerOptions<'_> {
    /// Returns the default options.
    pub const fn new() -> Self {
        Self {
            max_len: 1 << 20,
            buffer_len: 4096,
            depth: 16,
            requests: 0,
            access: AccessFlags::empty(),
            params: ConnectParams::new(),
            pd: None,
            group: None,
        }
    }
}

impl Default for MessengerOptions<'_> {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    MessengerOptions<'a> {
        max_len: usize,
        buffer_len: usize,
        depth: u16,
        requests: u16,
        access: AccessFlags,
        params: ConnectParams<'a>,
        pd: Option<&'a ProtectionDomain>,
        group: Option<&'a MessengerGroup>,
    }
}

/// The objects of a messenger that is not connected yet.
#[derive(Debug)]
pub(super) struct Resources {
    driver: Arc<Driver>,
    pools: Pools,
    depth: u16,
    hello: Hello,
    member: Option<Member>,
}

/// Membership in a group. Dropping it ends the membership of a connection that was not
/// established.
#[derive(Debug)]
struct Member {
    group: MessengerGroup,
    qp_num: Qpn,
    lease: Arc<Lease>,
    is_connected: bool,
}

impl Drop for Member {
    fn drop(&mut self) {
        if !self.is_connected {
            self.group.driver().remove(self.qp_num);
        }
    }
}

impl Resources {
    /// Creates the objects of a messenger, and its queue pair.
    pub(super) fn new(
        options: &MessengerOptions<'_>,
        open: impl FnOnce() -> Result<Context>,
    ) -> Result<(Self, QueuePair<Rc>)> {
        if let Some(group) = options.group {
            return Self::in_group(group, options);
        }
        let hello = hello(options.max_len, options.buffer_len, options.depth)?;
        let depth = options.depth.max(1);
        let pd = match options.pd {
            Some(pd) => pd.clone(),
            None => open()?.alloc_pd()?,
        };
        let sends = u32::from(depth) + u32::from(CONTROLS) + u32::from(options.requests);
        let channel = pd.context().create_comp_channel()?;
        let entries = sends + hello.receives;
        let cq_options = CqOptions::new().depth(entries).channel(&channel);
        let cq = pd.context().create_cq(cq_options)?;
        let qp_options = QpOptions::new()
            .max_send_wr(sends)
            .max_recv_wr(hello.receives);
        let qp = pd.create_qp::<Rc>(&cq, &cq, qp_options)?;
        let len = hello.receive_len as usize;
        let pools = Pools {
            recv: pd.pool(hello.receives as usize, len)?,
            send: pd.pool(depth.into(), len)?,
            control: pd.pool(CONTROLS.into(), HELLO_LEN)?,
        };
        let resources = Self {
            driver: Driver::new(cq, channel, None)?,
            pools,
            depth,
            hello,
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
            hello: group.hello(),
            member: Some(Member {
                group: group.clone(),
                qp_num: qp.qp_num(),
                lease,
                is_connected: false,
            }),
        };
        Ok((resources, qp))
    }

    /// Posts the first receives. A group has posted them already.
    pub(super) fn fill(&self, qp: &mut QueuePair<Rc>) -> Result<()> {
        if self.member.is_some() {
            return Ok(());
        }
        while let Some(buf) = self.pools.recv.take() {
            qp.post_recv(wr::recv(buf)).map_err(Error::from)?;
        }
        Ok(())
    }

    /// Creates the messenger of an established connection. The active side sends its greeting.
    pub(super) fn connected(self, connection: Connection, is_active: bool) -> Result<Arc<Owner>> {
        let Self {
            driver,
            pools,
            depth,
            hello,
            member,
        } = self;
        if member.is_none() {
            driver.watch(connection.channel())?;
        }
        let (qp_num, key) = (connection.qp().qp_num(), connection.key());
        let receives = member
            .as_ref()
            .map(|member| member.group.receives().clone());
        let state = State::new(connection, pools, receives, depth, hello, is_active);
        let lease = member.as_ref().map(|member| Arc::clone(&member.lease));
        let shared = Shared::new(state, driver, qp_num, key, lease);
        shared.driver.add(&shared);
        let owner = Arc::new(Owner(shared));
        if let Some(mut member) = member {
            member.is_connected = true;
            owner.0.driver.migrate(&owner.0)?;
        }
        Ok(owner)
    }
}

/// Returns the greeting that describes a messenger with these options.
pub(super) fn hello(max_len: usize, buffer_len: usize, depth: u16) -> Result<Hello> {
    let payload = buffer_len.min(max_len).max(1);
    let receive_len = (payload.saturating_add(HEADER_LEN)).max(MIN_RECEIVE_LEN);
    let receives = u32::from(depth.max(1)) + RESERVE;
    debug_assert!(receives <= MAX_RECEIVES);
    match (u32::try_from(receive_len), u32::try_from(max_len.max(1))) {
        (Ok(receive_len), Ok(max_len)) => Ok(Hello {
            receive_len,
            receives,
            max_len,
        }),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            VERB,
            format!("messages of at most {max_len} bytes in buffers of {buffer_len} bytes"),
        )
        .with_help("use less than 4 GiB for both")),
    }
}
