//! Events of the connection manager.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs::Result;
use rdma_sys::{IBV_QPT_UD, rdma_ack_cm_event, rdma_cm_event, rdma_cm_id, rdma_destroy_id};

use crate::address::UdAddress;
use crate::event::Channel;
use crate::newtype::c_value;

c_value! {
    /// What happened (`enum rdma_cm_event_type`).
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::{CmEventType, Connection};
    /// # fn f(mut connection: Connection) -> ibverbs::Result<()> {
    /// while let Some(event) = connection.wait_event(None)? {
    ///     match event.event_type {
    ///         CmEventType::DISCONNECTED => break,
    ///         CmEventType::DEVICE_REMOVAL => println!("let go of {}", connection.device_name()),
    ///         other => println!("{other}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
    pub struct CmEventType(u32) {
        /// The address is resolved: a device was chosen.
        ADDR_RESOLVED = rdma_sys::RDMA_CM_EVENT_ADDR_RESOLVED => "ADDR_RESOLVED",
        /// The address was not resolved.
        ADDR_ERROR = rdma_sys::RDMA_CM_EVENT_ADDR_ERROR => "ADDR_ERROR",
        /// A route to the peer is found.
        ROUTE_RESOLVED = rdma_sys::RDMA_CM_EVENT_ROUTE_RESOLVED => "ROUTE_RESOLVED",
        /// No route was found.
        ROUTE_ERROR = rdma_sys::RDMA_CM_EVENT_ROUTE_ERROR => "ROUTE_ERROR",
        /// A peer wants to connect.
        CONNECT_REQUEST = rdma_sys::RDMA_CM_EVENT_CONNECT_REQUEST => "CONNECT_REQUEST",
        /// The peer accepted, and waits for the queue pair to follow.
        CONNECT_RESPONSE = rdma_sys::RDMA_CM_EVENT_CONNECT_RESPONSE => "CONNECT_RESPONSE",
        /// The connection failed to come about.
        CONNECT_ERROR = rdma_sys::RDMA_CM_EVENT_CONNECT_ERROR => "CONNECT_ERROR",
        /// The peer does not answer.
        UNREACHABLE = rdma_sys::RDMA_CM_EVENT_UNREACHABLE => "UNREACHABLE",
        /// The peer rejected.
        REJECTED = rdma_sys::RDMA_CM_EVENT_REJECTED => "REJECTED",
        /// The connection stands.
        ESTABLISHED = rdma_sys::RDMA_CM_EVENT_ESTABLISHED => "ESTABLISHED",
        /// The connection is over.
        DISCONNECTED = rdma_sys::RDMA_CM_EVENT_DISCONNECTED => "DISCONNECTED",
        /// The device is being removed.
        DEVICE_REMOVAL = rdma_sys::RDMA_CM_EVENT_DEVICE_REMOVAL => "DEVICE_REMOVAL",
        /// A multicast group was joined.
        MULTICAST_JOIN = rdma_sys::RDMA_CM_EVENT_MULTICAST_JOIN => "MULTICAST_JOIN",
        /// Joining a multicast group failed, or membership ended.
        MULTICAST_ERROR = rdma_sys::RDMA_CM_EVENT_MULTICAST_ERROR => "MULTICAST_ERROR",
        /// The address moved to another interface or changed its hardware address.
        ADDR_CHANGE = rdma_sys::RDMA_CM_EVENT_ADDR_CHANGE => "ADDR_CHANGE",
        /// The queue pair number may be used again.
        TIMEWAIT_EXIT = rdma_sys::RDMA_CM_EVENT_TIMEWAIT_EXIT => "TIMEWAIT_EXIT",
    }
}

/// Something that happened to a connection: a copy, already acknowledged.
///
/// No connection comes out of it: only [`Listener::accept`](crate::Listener::accept) yields those,
/// from connect requests.
///
/// # Example
/// ```no_run
/// use rdmacm::CmEvent;
/// use rdmacm::connection::ConnectedId;
/// use std::time::Duration;
/// # fn f(link: &mut ConnectedId) -> ibverbs::Result<()> {
/// if let Some(CmEvent {
///     event_type, status, ..
/// }) = link.wait_event(Some(Duration::from_secs(1)))?
/// {
///     println!("{event_type}, status {status}");
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`rdma_get_cm_event(3)`](https://man7.org/linux/man-pages/man3/rdma_get_cm_event.3.html)
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CmEvent {
    /// What happened.
    pub event_type: CmEventType,
    /// 0, a negative errno, or for [`CmEventType::REJECTED`] a
    /// [`RejectReason`](crate::RejectReason).
    pub status: i32,
    /// What the peer gave along.
    pub private_data: Vec<u8>,
}

/// An event, copied and acknowledged: nothing of it stays with librdmacm, so that no identifier has
/// to wait for it when it goes or moves.
#[derive(Debug)]
pub(crate) struct Event {
    what: CmEventType,
    status: i32,
    private_data: Vec<u8>,
    param: Param,
    /// The address of the identifier that it happened to.
    subject: usize,
    new_id: Option<NewId>,
}

/// What events say beside private data.
#[derive(Clone, Copy, Debug)]
enum Param {
    Conn {
        responder_resources: u8,
        initiator_depth: u8,
    },
    Datagram(UdAddress),
}

impl Event {
    /// Takes an event off a channel, if one is there.
    pub(crate) fn take_from(channel: &Arc<Channel>) -> Result<Option<Self>> {
        // SAFETY: the event was just taken off this channel.
        Ok(channel
            .try_get()?
            .map(|raw| unsafe { Self::copy(raw, channel) }))
    }

    /// Copies an event and acknowledges it.
    ///
    /// # Safety
    /// `raw` came from `rdma_get_cm_event` on this channel and is owned by nobody else.
    unsafe fn copy(raw: NonNull<rdma_cm_event>, channel: &Arc<Channel>) -> Self {
        // SAFETY: the event is not acknowledged yet, so it is valid, and so is the identifier that
        // it happened to. librdmacm zeroes it and fills the member for datagrams if the
        // identifier is of those, otherwise that of connections; both are integers and a pointer to
        // so many bytes within the event, or to none.
        unsafe {
            let event = raw.as_ref();
            let is_request = event.event == CmEventType::CONNECT_REQUEST.0;
            let (param, data, len) = if (*event.id).qp_type == IBV_QPT_UD {
                let ud = &event.param.ud;
                (
                    Param::Datagram(UdAddress::new(ud)),
                    ud.private_data,
                    ud.private_data_len,
                )
            } else {
                let conn = &event.param.conn;
                let (responder_resources, initiator_depth) =
                    (conn.responder_resources, conn.initiator_depth);
                (
                    Param::Conn {
                        responder_resources,
                        initiator_depth,
                    },
                    conn.private_data,
                    conn.private_data_len,
                )
            };
            let data = if data.is_null() {
                &[]
            } else {
                std::slice::from_raw_parts(data.cast(), len.into())
            };
            let new = |raw| NewId {
                raw,
                channel: Arc::clone(channel),
            };
            let taken = Self {
                what: CmEventType(event.event),
                status: event.status,
                private_data: data.to_vec(),
                param,
                subject: if is_request {
                    event.listen_id
                } else {
                    event.id
                }
                .addr(),
                new_id: NonNull::new(event.id).filter(|_| is_request).map(new),
            };
            // It fails only without an event.
            rdma_ack_cm_event(raw.as_ptr());
            taken
        }
    }

    /// An event of no library.
    #[cfg(test)]
    pub(crate) fn of(event_type: CmEventType, subject: usize, status: i32) -> Self {
        let param = Param::Conn {
            responder_resources: 0,
            initiator_depth: 0,
        };
        Self {
            what: event_type,
            status,
            private_data: Vec::new(),
            param,
            subject,
            new_id: None,
        }
    }

    pub(crate) fn event_type(&self) -> CmEventType {
        self.what
    }

    pub(crate) fn status(&self) -> i32 {
        self.status
    }

    pub(crate) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Where a service or a group is, of events of datagrams; `None` for those of connections.
    pub(crate) fn datagram(&self) -> Option<UdAddress> {
        match self.param {
            Param::Datagram(target) => Some(target),
            Param::Conn { .. } => None,
        }
    }

    /// Reads and atomics that the peer wants this side to serve at once.
    pub(crate) fn responder_resources(&self) -> u8 {
        match self.param {
            Param::Conn {
                responder_resources,
                ..
            } => responder_resources,
            Param::Datagram(_) => 0,
        }
    }

    /// Reads and atomics that the peer serves at once.
    pub(crate) fn initiator_depth(&self) -> u8 {
        match self.param {
            Param::Conn {
                initiator_depth, ..
            } => initiator_depth,
            Param::Datagram(_) => 0,
        }
    }

    /// The address of the identifier that it happened to: of a connect request, the listener's.
    pub(crate) fn subject(&self) -> usize {
        self.subject
    }

    /// The address of the identifier that a connect request brings; `None` for other events.
    pub(crate) fn new_subject(&self) -> Option<usize> {
        self.new_id.as_ref().map(|new| new.raw.as_ptr().addr())
    }

    /// Takes the identifier that a connect request brings; `None` for other events. Not taken, it
    /// goes with the event.
    pub(crate) fn take_new_id(&mut self) -> Option<NonNull<rdma_cm_id>> {
        self.new_id.take().map(NewId::into_raw)
    }

    pub(crate) fn into_public(self) -> CmEvent {
        CmEvent {
            event_type: self.what,
            status: self.status,
            private_data: self.private_data,
        }
    }
}

/// An identifier that nobody has taken yet: the request is rejected when it goes.
#[derive(Debug)]
struct NewId {
    raw: NonNull<rdma_cm_id>,
    /// It is on this channel until it is moved.
    channel: Arc<Channel>,
}

// SAFETY: librdmacm binds an identifier to no thread.
unsafe impl Send for NewId {}

impl NewId {
    fn into_raw(self) -> NonNull<rdma_cm_id> {
        let this = ManuallyDrop::new(self);
        // SAFETY: read once, and not dropped after.
        drop(unsafe { ptr::read(&raw const this.channel) });
        this.raw
    }
}

impl Drop for NewId {
    fn drop(&mut self) {
        // SAFETY: nobody else has it; its events, if there were any, are acknowledged. The kernel
        // rejects the request.
        if unsafe { rdma_destroy_id(self.raw.as_ptr()) } != 0 {
            ibverbs::count_leaked_object();
            std::mem::forget(Arc::clone(&self.channel));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_newer_library_prints_as_its_number() {
        assert_eq!(CmEventType(9).to_string(), "ESTABLISHED");
        assert_eq!(CmEventType(99).to_string(), "unknown (99)");
    }
}
