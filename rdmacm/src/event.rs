//! Events of the connection manager.

#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use rdma_sys::{IBV_QPT_UD, rdma_ack_cm_event, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_ud_param};

use crate::newtype::c_value;

c_value! {
    /// What happened (`enum rdma_cm_event_type`).
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
/// No connection comes out of it: only [`Listener::accept`](crate::Listener::accept) yields those, from connect requests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CmEvent {
    /// What happened.
    pub event_type: CmEventType,
    /// 0, a negative errno, or for [`CmEventType::REJECTED`] a [`RejectReason`](crate::RejectReason).
    pub status: i32,
    /// What the peer gave along.
    pub private_data: Vec<u8>,
}

/// An event that librdmacm handed out. It borrows the identifier whose channel it came from, and is acknowledged when it is dropped:
/// so before that identifier can be destroyed, which would wait for the acknowledgement.
pub(crate) struct Event<'id> {
    raw: NonNull<rdma_cm_event>,
    id: PhantomData<&'id ()>,
}

impl Event<'_> {
    /// # Safety
    /// `raw` came from `rdma_get_cm_event` and is owned by nobody else; the identifier of `'id` is the one it happened to.
    pub(crate) unsafe fn from_raw(raw: NonNull<rdma_cm_event>) -> Self {
        Self { raw, id: PhantomData }
    }

    pub(crate) fn event_type(&self) -> CmEventType {
        // SAFETY: the event is not acknowledged yet, so it is valid.
        CmEventType(unsafe { (*self.raw.as_ptr()).event })
    }

    pub(crate) fn status(&self) -> i32 {
        // SAFETY: as above.
        unsafe { (*self.raw.as_ptr()).status }
    }

    /// The part of events of connections; `None` for those of datagrams.
    fn conn(&self) -> Option<&rdma_conn_param> {
        // SAFETY: the event is valid while borrowed. librdmacm zeroes it and fills this member unless the identifier is of datagrams; it is
        // integers and a pointer, so any content is a value.
        (!self.is_datagram()).then(|| unsafe { &(*self.raw.as_ptr()).param.conn })
    }

    /// The part of events of datagrams; `None` for those of connections.
    pub(crate) fn datagram(&self) -> Option<&rdma_ud_param> {
        // SAFETY: as above, for the other member.
        self.is_datagram().then(|| unsafe { &(*self.raw.as_ptr()).param.ud })
    }

    fn is_datagram(&self) -> bool {
        // SAFETY: the event is valid, and so is its identifier until the event is acknowledged.
        unsafe { (*(*self.raw.as_ptr()).id).qp_type == IBV_QPT_UD }
    }

    pub(crate) fn private_data(&self) -> &[u8] {
        let (data, len) = match (self.conn(), self.datagram()) {
            (Some(conn), _) => (conn.private_data, conn.private_data_len),
            (_, Some(datagram)) => (datagram.private_data, datagram.private_data_len),
            _ => return &[],
        };
        if data.is_null() {
            return &[];
        }
        // SAFETY: librdmacm points it at so many bytes within the event, which lives while borrowed.
        unsafe { std::slice::from_raw_parts(data.cast(), len.into()) }
    }

    /// Reads and atomics that the peer wants this side to serve at once.
    pub(crate) fn responder_resources(&self) -> u8 {
        self.conn().map_or(0, |conn| conn.responder_resources)
    }

    /// Reads and atomics that the peer serves at once.
    pub(crate) fn initiator_depth(&self) -> u8 {
        self.conn().map_or(0, |conn| conn.initiator_depth)
    }

    /// The identifier that a connect request brings; `None` for other events.
    pub(crate) fn new_id(&self) -> Option<NonNull<rdma_cm_id>> {
        if self.event_type() != CmEventType::CONNECT_REQUEST {
            return None;
        }
        // SAFETY: the event is valid.
        NonNull::new(unsafe { (*self.raw.as_ptr()).id })
    }

    pub(crate) fn to_public(&self) -> CmEvent {
        CmEvent { event_type: self.event_type(), status: self.status(), private_data: self.private_data().to_vec() }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // It fails only without an event. SAFETY: acknowledged once, here.
        unsafe { rdma_ack_cm_event(self.raw.as_ptr()) };
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
