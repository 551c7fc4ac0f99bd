//! Multicast groups.

#![allow(unsafe_code)]

mod joining;

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use ibverbs::{Context, Error, ErrorKind, Gid, QueuePair, Result, Ud, wr::Destination};
use rdma_sys::{
    RDMA_CM_JOIN_MC_ATTR_ADDRESS, RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS, rdma_cm_join_mc_attr_ex,
    rdma_join_multicast_ex, rdma_leave_multicast,
};

pub use self::joining::Joining;
use crate::address::{Address, RawAddress, UdAddress};
use crate::convert::zero_or_last;
use crate::datagram;
use crate::error::ConnectError;
use crate::event::{CmEvent, CmEventType, Event, EventChannel, IdKey};
use crate::id::{Id, Path};
use rdma_types::c_value;

pub(crate) const VERB: &str = "rdma_join_multicast";

c_value! {
    /// Membership type of a multicast group (`enum rdma_cm_mc_join_flags`).
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::Resolver;
    /// use rdmacm::datagram::multicast::JoinAs;
    /// let group = Resolver::new("239.1.2.3:0".parse()?).join(JoinAs::SEND_ONLY)?;
    /// println!("device {}", group.device_name());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "rdma_join_multicast_ex")]
    pub struct JoinAs(u32) {
        /// Send and receive.
        FULL_MEMBER = rdma_sys::RDMA_MC_JOIN_FLAG_FULLMEMBER => "full member",
        /// Send only. The group is created if it does not exist. Not every fabric supports this.
        SEND_ONLY = rdma_sys::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => "send-only full member",
    }
}

impl Id {
    pub(crate) fn join(
        &self,
        group: Address,
        join_as: JoinAs,
        detail: &dyn fmt::Display,
    ) -> Result<()> {
        let mut raw = RawAddress::from(group);
        let mut attr = rdma_cm_join_mc_attr_ex {
            comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
            join_flags: join_as.0,
            addr: raw.as_mut_ptr(),
        };
        // SAFETY: `self` keeps the identifier alive, and its `qp` is null. The attributes and the
        // address are valid during the call.
        let returned =
            unsafe { rdma_join_multicast_ex(self.as_ptr(), &raw mut attr, std::ptr::null_mut()) };
        zero_or_last(VERB, detail, returned)
    }

    pub(crate) fn leave(&self, group: Address, detail: &dyn fmt::Display) -> Result<()> {
        let mut raw = RawAddress::from(group);
        // SAFETY: `self` keeps the identifier alive, and its `qp` is null. The address is valid
        // during the call. The call waits for unacknowledged events of the group, and there are
        // none because `Event` acknowledges each when it is read.
        let returned = unsafe { rdma_leave_multicast(self.as_ptr(), raw.as_mut_ptr()) };
        zero_or_last("rdma_leave_multicast", detail, returned)
    }
}

/// Membership of a multicast group, returned by [`Resolver::join`](crate::Resolver::join). Dropping
/// it leaves the group.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, GRH_LEN, QpOptions, Ud, wr};
/// use rdmacm::Resolver;
/// use rdmacm::datagram::multicast::JoinAs;
///
/// let group = Resolver::new("239.1.2.3:0".parse()?)
///     .device("rxe0")
///     .join(JoinAs::FULL_MEMBER)?;
/// let pd = group.context()?.alloc_pd()?;
/// let mut cq = pd.context().create_cq(CqOptions::default())?;
/// let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
/// group.start_qp(&mut qp)?;
/// qp.post_recv(wr::recv(pd.buf(GRH_LEN + 64)?))?; // 40 bytes of route precede the data
/// group.attach(&mut qp)?;
/// let destination = group.destination(&mut qp)?;
/// qp.post_send(wr::send(pd.buf(64)?).to(destination))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rdma_join_multicast")]
#[doc(alias = "rdma_leave_multicast")]
#[derive(Debug)]
#[must_use = "dropping a membership leaves the group"]
pub struct Membership {
    id: Id,
    path: Path,
    group: Address,
    address: UdAddress,
    has_left: bool,
}

impl Membership {
    pub(crate) fn new(id: Id, path: Path, group: Address, address: UdAddress) -> Self {
        Self {
            id,
            path,
            group,
            address,
            has_left: false,
        }
    }

    /// Returns the name of the device through which the group is reached.
    pub fn device_name(&self) -> &str {
        &self.path.device
    }

    /// Returns the port number of the device, starting at 1.
    pub fn port_num(&self) -> u8 {
        self.path.port_num
    }

    /// Returns the local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.path.local
    }

    /// Returns the address of the group: address handle attributes, queue pair number and Q_Key.
    pub fn ud_address(&self) -> UdAddress {
        self.address
    }

    /// Returns the GID of the group. It is all zeros without a global route, but every group has
    /// one.
    pub fn gid(&self) -> Gid {
        self.address
            .ah_attr
            .grh
            .map_or(Gid([0; 16]), |grh| grh.dgid)
    }

    /// Opens the device, to create the queue pair on it.
    ///
    /// # Errors
    /// Same as [`Device::open`](ibverbs::Device::open).
    #[doc(alias = "ibv_open_device")]
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// Moves a new queue pair of [this device](Self::device_name) from RESET to RTS with the Q_Key
    /// of the group.
    ///
    /// # Errors
    /// Same as [`DatagramRoute::start_qp`](crate::datagram::DatagramRoute::start_qp).
    #[doc(alias = "ibv_modify_qp")]
    pub fn start_qp(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        datagram::start_qp(&self.id, &self.path, qp, Some(self.address.qkey))
    }

    /// Attaches a queue pair to the group. It receives the group's datagrams until it is
    /// [detached](Self::detach) or destroyed.
    ///
    /// # Errors
    /// Same as [`attach_mcast`](QueuePair::attach_mcast).
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        self.path.check("ibv_attach_mcast", qp)?;
        qp.attach_mcast(self.gid(), self.address.ah_attr.dlid)
    }

    /// Detaches a queue pair from the group.
    ///
    /// # Errors
    /// Same as [`detach_mcast`](QueuePair::detach_mcast).
    #[doc(alias = "ibv_attach_mcast")]
    pub fn detach(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        qp.detach_mcast(self.gid(), self.address.ah_attr.dlid)
    }

    /// Returns the destination for datagrams to all members: see [`UdAddress::destination`].
    ///
    /// # Errors
    /// Same as [`UdAddress::destination`].
    #[doc(alias = "ibv_create_ah")]
    pub fn destination(&self, qp: &mut QueuePair<Ud>) -> Result<Destination> {
        self.address.destination(qp)
    }

    /// Returns the next event, if there is one.
    ///
    /// # Errors
    /// Fails if the membership has ended: [`ErrorKind::NotFound`] if the device was removed,
    /// [`ErrorKind::PortDown`] if the address moved to another interface, and other kinds if the
    /// fabric removed the group. Join again to continue.
    #[doc(alias = "rdma_get_cm_event")]
    pub fn try_event(&mut self) -> Result<Option<CmEvent>> {
        let Some(event) = self.id.try_event()? else {
            return Ok(None);
        };
        event_or_error(&self.describe(), event).map(Some)
    }

    /// Waits for an event, at most for `timeout` (forever if `None`). Returns `Ok(None)` on
    /// timeout.
    ///
    /// # Errors
    /// Same as [`try_event`](Self::try_event).
    #[doc(alias = "rdma_get_cm_event")]
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let channel = self.id.channel().clone();
        channel.wait_for(timeout, || self.try_event())
    }

    /// Returns the key that an [`EventChannel`] returns for this membership.
    pub fn key(&self) -> IdKey {
        self.id.key()
    }

    /// Moves the membership to another [`EventChannel`], together with its unread events.
    ///
    /// # Errors
    /// Fails if the device was removed. The membership then stays on its channel.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        self.id.migrate(to)
    }

    /// Leaves the group and reports failures. Detach or destroy the attached queue pairs first.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "rdma_leave_multicast")]
    pub fn leave(mut self) -> Result<()> {
        self.has_left = true;
        self.id.leave(self.group, &self.describe())
    }

    fn describe(&self) -> String {
        format!("group {} over {}", self.group, self.path.device)
    }
}

/// Returns the event, or the error that it stands for.
fn event_or_error(detail: &str, event: Event) -> Result<CmEvent> {
    match event.event_type() {
        CmEventType::DEVICE_REMOVAL | CmEventType::MULTICAST_ERROR => {
            Err(ConnectError::from_event(VERB, &detail, &event).into())
        }
        CmEventType::ADDR_CHANGE => {
            let detail = format!("{detail}: the local address moved to another interface");
            Err(Error::new(ErrorKind::PortDown, VERB, detail)
                .with_help("join again to follow the address"))
        }
        _ => Ok(event.into_public()),
    }
}

impl AsFd for Membership {
    /// Readable if there is an event. On a shared channel: if there is an event of any identifier.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.has_left {
            // Destroying the identifier next also leaves the group, so this call may fail.
            let _ = self.id.leave(self.group, &self.describe());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_membership_is_an_error() {
        for (event_type, kind) in [
            (CmEventType::DEVICE_REMOVAL, ErrorKind::NotFound),
            (CmEventType::ADDR_CHANGE, ErrorKind::PortDown),
        ] {
            let error = event_or_error(
                "group 239.1.2.3 over rxe0",
                Event::for_test(event_type, 8, 0),
            )
            .expect_err("an error");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("239.1.2.3"), "{error}");
        }
        event_or_error(
            "group",
            Event::for_test(CmEventType::MULTICAST_ERROR, 8, -libc::ENETDOWN),
        )
        .expect_err("an error");
        event_or_error("group", Event::for_test(CmEventType::TIMEWAIT_EXIT, 8, 0))
            .expect("no error");
    }
}
