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
use crate::newtype::c_value;

pub(crate) const VERB: &str = "rdma_join_multicast";

c_value! {
    /// How a group is joined (`enum rdma_cm_mc_join_flags`).
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::Resolver;
    /// use rdmacm::datagram::multicast::JoinAs;
    /// let group = Resolver::new("239.1.2.3:0".parse()?).join(JoinAs::SEND_ONLY)?;
    /// println!("over {}", group.device_name());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # References
    /// [`rdma_join_multicast_ex(3)`](https://man7.org/linux/man-pages/man3/rdma_join_multicast_ex.3.html)
    pub struct JoinAs(u32) {
        /// To send and to receive.
        FULL_MEMBER = rdma_sys::RDMA_MC_JOIN_FLAG_FULLMEMBER => "full member",
        /// To send only; the group is made if it does not exist. Not on every fabric.
        SEND_ONLY = rdma_sys::RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER => "send-only full member",
    }
}

impl Id {
    pub(crate) fn join(&self, group: Address, how: JoinAs, what: &dyn fmt::Display) -> Result<()> {
        let mut raw = RawAddress::from(group);
        let mut attr = rdma_cm_join_mc_attr_ex {
            comp_mask: RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS,
            join_flags: how.0,
            addr: raw.as_mut_ptr(),
        };
        // SAFETY: the identifier is alive and has no queue pair of its own; attributes and address
        // are valid during the call.
        let returned =
            unsafe { rdma_join_multicast_ex(self.as_ptr(), &raw mut attr, std::ptr::null_mut()) };
        zero_or_last(VERB, what, returned)
    }

    pub(crate) fn leave(&self, group: Address, what: &dyn fmt::Display) -> Result<()> {
        let mut raw = RawAddress::from(group);
        // SAFETY: the identifier is alive and has no queue pair of its own; the address is valid
        // during the call. It waits until the events of the group are acknowledged, which
        // each is before the call that took it returns.
        let returned = unsafe { rdma_leave_multicast(self.as_ptr(), raw.as_mut_ptr()) };
        zero_or_last("rdma_leave_multicast", what, returned)
    }
}

/// A membership of a multicast group, from [`Resolver::join`](crate::Resolver::join). Dropping it
/// leaves the group.
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
/// qp.post_recv(wr::recv(pd.buf(GRH_LEN + 64)?))?; // what arrives follows 40 bytes of route
/// group.attach(&mut qp)?;
/// let all = group.destination(&mut qp)?;
/// qp.post_send(wr::send_to(pd.buf(64)?, all))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # References
/// [`rdma_join_multicast(3)`](https://man7.org/linux/man-pages/man3/rdma_join_multicast.3.html),
/// [`rdma_leave_multicast(3)`](https://man7.org/linux/man-pages/man3/rdma_leave_multicast.3.html)
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

    /// The device that the group is reached by.
    pub fn device_name(&self) -> &str {
        &self.path.device
    }

    /// The port of the device, from 1.
    pub fn port_num(&self) -> u8 {
        self.path.port_num
    }

    /// The local address.
    pub fn local_addr(&self) -> SocketAddr {
        self.path.local
    }

    /// The group's GID, way, number and key.
    pub fn ud_address(&self) -> UdAddress {
        self.address
    }

    /// The group's GID; all zeros without a global route, which every group has.
    pub fn gid(&self) -> Gid {
        self.address
            .ah_attr
            .grh
            .map_or(Gid([0; 16]), |grh| grh.dgid)
    }

    /// Opens the device, to make the queue pair on.
    ///
    /// # Errors
    /// As [`Device::open`](ibverbs::Device::open).
    ///
    /// # References
    /// [`ibv_open_device(3)`](https://man7.org/linux/man-pages/man3/ibv_open_device.3.html)
    pub fn context(&self) -> Result<Context> {
        self.path.open()
    }

    /// Moves a fresh queue pair of [this device](Self::device_name) from RESET to RTS, with the
    /// group's key.
    ///
    /// # Errors
    /// As [`DatagramRoute::start_qp`](crate::DatagramRoute::start_qp).
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn start_qp(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        datagram::start(&self.id, &self.path, qp, Some(self.address.qkey))
    }

    /// Has the queue pair receive what is sent to the group, until it is [detached](Self::detach)
    /// or destroyed.
    ///
    /// # Errors
    /// As [`attach_mcast`](QueuePair::attach_mcast).
    ///
    /// # References
    /// [`ibv_attach_mcast(3)`](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)
    pub fn attach(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        self.path.check("ibv_attach_mcast", qp)?;
        qp.attach_mcast(self.gid(), self.address.ah_attr.dlid)
    }

    /// Has the queue pair receive it no more.
    ///
    /// # Errors
    /// As [`detach_mcast`](QueuePair::detach_mcast).
    ///
    /// # References
    /// [`ibv_attach_mcast(3)`](https://man7.org/linux/man-pages/man3/ibv_attach_mcast.3.html)
    pub fn detach(&self, qp: &mut QueuePair<Ud>) -> Result<()> {
        qp.detach_mcast(self.gid(), self.address.ah_attr.dlid)
    }

    /// The destination for datagrams to all members: see [`UdAddress::destination`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_create_ah(3)`](https://man7.org/linux/man-pages/man3/ibv_create_ah.3.html)
    pub fn destination(&self, qp: &mut QueuePair<Ud>) -> Result<Destination> {
        self.address.destination(qp)
    }

    /// Takes an event that is there already.
    ///
    /// # Errors
    /// When the membership has ended: the device is removed ([`ErrorKind::NotFound`]), the address
    /// moved to another interface ([`ErrorKind::PortDown`]), or the fabric forgot the group.
    /// Join anew.
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn check_event(&mut self) -> Result<Option<CmEvent>> {
        let Some(event) = self.id.try_event()? else {
            return Ok(None);
        };
        meaning(&self.describe(), event).map(Some)
    }

    /// Waits for an event, at most for `timeout` (for ever when `None`); `Ok(None)` when the time
    /// is over.
    ///
    /// # Errors
    /// As [`check_event`](Self::check_event).
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Result<Option<CmEvent>> {
        let channel = self.id.channel().clone();
        channel.wait_for(timeout, || self.check_event())
    }

    /// What an [`EventChannel`] calls it.
    pub fn key(&self) -> IdKey {
        self.id.key()
    }

    /// Has the events arrive at another channel, those too that nobody has taken yet: see
    /// [`EventChannel`].
    ///
    /// # Errors
    /// Fails when the device is gone; the membership stays where it was.
    ///
    /// # References
    /// [`rdma_migrate_id(3)`](https://man7.org/linux/man-pages/man3/rdma_migrate_id.3.html)
    pub fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        self.id.migrate(to)
    }

    /// Leaves the group, and says if that failed. Queue pairs that are attached should be detached
    /// or destroyed before.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`rdma_leave_multicast(3)`](https://man7.org/linux/man-pages/man3/rdma_leave_multicast.3.html)
    pub fn leave(mut self) -> Result<()> {
        self.has_left = true;
        self.id.leave(self.group, &self.describe())
    }

    fn describe(&self) -> String {
        format!("group {} over {}", self.group, self.path.device)
    }
}

/// Which events of a membership are errors.
fn meaning(what: &str, event: Event) -> Result<CmEvent> {
    match event.event_type() {
        CmEventType::DEVICE_REMOVAL | CmEventType::MULTICAST_ERROR => {
            Err(ConnectError::from_event(VERB, &what, &event).into())
        }
        CmEventType::ADDR_CHANGE => {
            let what = format!("{what}: the local address moved to another interface");
            Err(Error::new(ErrorKind::PortDown, VERB, what).with_hint("join anew to follow it"))
        }
        _ => Ok(event.into_public()),
    }
}

impl AsFd for Membership {
    /// Readable when there is an event. On a channel for many: when there is one of any of them.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.id.channel().as_fd()
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        if !self.has_left {
            // The identifier is destroyed next, which leaves too.
            let _ = self.id.leave(self.group, &self.describe());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_device_a_moved_address_and_a_forgotten_group_are_errors() {
        for (event_type, kind) in [
            (CmEventType::DEVICE_REMOVAL, ErrorKind::NotFound),
            (CmEventType::ADDR_CHANGE, ErrorKind::PortDown),
        ] {
            let error = meaning(
                "group 239.1.2.3 over rxe0",
                Event::for_test(event_type, 8, 0),
            )
            .expect_err("an error");
            assert_eq!(error.kind(), kind, "{error}");
            assert!(error.to_string().contains("239.1.2.3"), "{error}");
        }
        meaning(
            "group",
            Event::for_test(CmEventType::MULTICAST_ERROR, 8, -libc::ENETDOWN),
        )
        .expect_err("forgotten");
        meaning("group", Event::for_test(CmEventType::TIMEWAIT_EXIT, 8, 0)).expect("no error");
    }
}
