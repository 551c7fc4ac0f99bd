//! Event types, and events copied from librdmacm.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use ibverbs::Result;
use rdma_sys::{IBV_QPT_UD, rdma_ack_cm_event, rdma_cm_event, rdma_cm_id, rdma_destroy_id};

use crate::address::UdAddress;
use crate::event::Channel;
use rdma_types::c_value;

c_value! {
    /// Type of an event (`enum rdma_cm_event_type`).
    ///
    /// # Example
    /// ```no_run
    /// use rdmacm::{CmEventType, Connection};
    /// # fn f(mut connection: Connection) -> ibverbs::Result<()> {
    /// while let Some(event) = connection.wait_event(None)? {
    ///     match event.event_type {
    ///         CmEventType::DISCONNECTED => break,
    ///         CmEventType::DEVICE_REMOVAL => println!("{} is being removed", connection.device_name()),
    ///         other => println!("{other}"),
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "rdma_get_cm_event")]
    pub struct CmEventType(u32) {
        /// The address is resolved and a device is chosen.
        ADDR_RESOLVED = rdma_sys::RDMA_CM_EVENT_ADDR_RESOLVED => "ADDR_RESOLVED",
        /// Address resolution failed.
        ADDR_ERROR = rdma_sys::RDMA_CM_EVENT_ADDR_ERROR => "ADDR_ERROR",
        /// The route to the peer is resolved.
        ROUTE_RESOLVED = rdma_sys::RDMA_CM_EVENT_ROUTE_RESOLVED => "ROUTE_RESOLVED",
        /// Route resolution failed.
        ROUTE_ERROR = rdma_sys::RDMA_CM_EVENT_ROUTE_ERROR => "ROUTE_ERROR",
        /// A peer requests a connection.
        CONNECT_REQUEST = rdma_sys::RDMA_CM_EVENT_CONNECT_REQUEST => "CONNECT_REQUEST",
        /// The peer accepted the request and waits until this side's queue pair is ready.
        CONNECT_RESPONSE = rdma_sys::RDMA_CM_EVENT_CONNECT_RESPONSE => "CONNECT_RESPONSE",
        /// The connection could not be established.
        CONNECT_ERROR = rdma_sys::RDMA_CM_EVENT_CONNECT_ERROR => "CONNECT_ERROR",
        /// The peer did not answer.
        UNREACHABLE = rdma_sys::RDMA_CM_EVENT_UNREACHABLE => "UNREACHABLE",
        /// The peer rejected the request.
        REJECTED = rdma_sys::RDMA_CM_EVENT_REJECTED => "REJECTED",
        /// The connection is established.
        ESTABLISHED = rdma_sys::RDMA_CM_EVENT_ESTABLISHED => "ESTABLISHED",
        /// The connection has ended.
        DISCONNECTED = rdma_sys::RDMA_CM_EVENT_DISCONNECTED => "DISCONNECTED",
        /// The device is being removed.
        DEVICE_REMOVAL = rdma_sys::RDMA_CM_EVENT_DEVICE_REMOVAL => "DEVICE_REMOVAL",
        /// The multicast group was joined.
        MULTICAST_JOIN = rdma_sys::RDMA_CM_EVENT_MULTICAST_JOIN => "MULTICAST_JOIN",
        /// Joining the multicast group failed, or the membership ended.
        MULTICAST_ERROR = rdma_sys::RDMA_CM_EVENT_MULTICAST_ERROR => "MULTICAST_ERROR",
        /// The local address moved to another network interface, or its hardware address changed.
        ADDR_CHANGE = rdma_sys::RDMA_CM_EVENT_ADDR_CHANGE => "ADDR_CHANGE",
        /// The queue pair number can be used again.
        TIMEWAIT_EXIT = rdma_sys::RDMA_CM_EVENT_TIMEWAIT_EXIT => "TIMEWAIT_EXIT",
        /// A name is resolved.
        ADDRINFO_RESOLVED = rdma_sys::RDMA_CM_EVENT_ADDRINFO_RESOLVED => "ADDRINFO_RESOLVED",
        /// Name resolution failed.
        ADDRINFO_ERROR = rdma_sys::RDMA_CM_EVENT_ADDRINFO_ERROR => "ADDRINFO_ERROR",
        /// An event that a program wrote.
        USER = rdma_sys::RDMA_CM_EVENT_USER => "USER",
    }
}

/// An event of a connection, copied and already acknowledged.
///
/// An event never carries a new connection.
/// [`Listener::next_request`](crate::Listener::next_request) receives connect requests.
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
#[doc(alias = "rdma_get_cm_event")]
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CmEvent {
    /// Type of the event.
    pub event_type: CmEventType,
    /// 0, or a negative errno value.
    pub status: i32,
    /// Private data sent by the peer.
    pub private_data: Vec<u8>,
}

/// An event that was copied and then acknowledged. librdmacm retains nothing, so that destroying or
/// migrating an identifier never waits for an event.
#[derive(Debug)]
pub(crate) struct Event {
    kind: CmEventType,
    status: i32,
    private_data: Vec<u8>,
    param: Param,
    /// Address of the identifier that the event belongs to.
    id_addr: usize,
    new_id: Option<NewId>,
}

/// Parameters of an event other than its private data.
#[derive(Clone, Copy, Debug)]
enum Param {
    Conn {
        responder_resources: u8,
        initiator_depth: u8,
    },
    Datagram(UdAddress),
}

impl Event {
    /// Reads an event from a channel, if there is one.
    pub(crate) fn take_from(channel: &Arc<Channel>) -> Result<Option<Self>> {
        // SAFETY: `try_next` has just returned the event of this channel, and nothing else refers
        // to it.
        Ok(channel
            .try_next()?
            .map(|raw| unsafe { Self::copy(raw, channel) }))
    }

    /// Copies an event and acknowledges it.
    ///
    /// # Safety
    /// `raw` was returned by `rdma_get_cm_event` for this channel, and no other code acknowledges
    /// it.
    unsafe fn copy(raw: NonNull<rdma_cm_event>, channel: &Arc<Channel>) -> Self {
        // SAFETY: the caller guarantees an unacknowledged event, so that it and its identifier are
        // valid. librdmacm zeroes the event. It fills `param.ud` if the identifier's `qp_type` is
        // UD, and `param.conn` otherwise. Both contain integers, and a pointer that is null or
        // refers to `private_data_len` bytes inside the event.
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
            let copy = Self {
                kind: CmEventType(event.event),
                status: event.status,
                private_data: data.to_vec(),
                param,
                id_addr: if is_request {
                    event.listen_id
                } else {
                    event.id
                }
                .addr(),
                new_id: NonNull::new(event.id).filter(|_| is_request).map(new),
            };
            // It fails only for a null pointer.
            rdma_ack_cm_event(raw.as_ptr());
            copy
        }
    }

    /// Creates an event without librdmacm.
    #[cfg(test)]
    pub(crate) fn for_test(event_type: CmEventType, id_addr: usize, status: i32) -> Self {
        let param = Param::Conn {
            responder_resources: 0,
            initiator_depth: 0,
        };
        Self {
            kind: event_type,
            status,
            private_data: Vec::new(),
            param,
            id_addr,
            new_id: None,
        }
    }

    pub(crate) fn event_type(&self) -> CmEventType {
        self.kind
    }

    pub(crate) fn status(&self) -> i32 {
        self.status
    }

    pub(crate) fn private_data(&self) -> &[u8] {
        &self.private_data
    }

    /// Returns the address of a service or a multicast group, or `None` for an event of a
    /// connection.
    pub(crate) fn datagram(&self) -> Option<UdAddress> {
        match self.param {
            Param::Datagram(address) => Some(address),
            Param::Conn { .. } => None,
        }
    }

    /// Returns the number of READs and atomics that the peer asks this side to serve concurrently.
    pub(crate) fn responder_resources(&self) -> u8 {
        match self.param {
            Param::Conn {
                responder_resources,
                ..
            } => responder_resources,
            Param::Datagram(_) => 0,
        }
    }

    /// Returns the number of READs and atomics that the peer serves concurrently.
    pub(crate) fn initiator_depth(&self) -> u8 {
        match self.param {
            Param::Conn {
                initiator_depth, ..
            } => initiator_depth,
            Param::Datagram(_) => 0,
        }
    }

    /// Returns the address of the identifier that the event belongs to. For a connect request it is
    /// the listener's.
    pub(crate) fn id_addr(&self) -> usize {
        self.id_addr
    }

    /// Returns the address of the new identifier of a connect request, or `None` for other events.
    pub(crate) fn new_id_addr(&self) -> Option<usize> {
        self.new_id.as_ref().map(|new| new.raw.as_ptr().addr())
    }

    /// Takes the new identifier of a connect request, or returns `None` for other events. If it is
    /// not taken, dropping the event destroys it.
    pub(crate) fn take_new_id(&mut self) -> Option<NonNull<rdma_cm_id>> {
        self.new_id.take().map(NewId::into_raw)
    }

    pub(crate) fn into_public(self) -> CmEvent {
        CmEvent {
            event_type: self.kind,
            status: self.status,
            private_data: self.private_data,
        }
    }
}

/// New identifier of a connect request. Dropping it rejects the request.
#[derive(Debug)]
struct NewId {
    raw: NonNull<rdma_cm_id>,
    /// The identifier uses this channel until it is migrated.
    channel: Arc<Channel>,
}

// SAFETY: librdmacm does not bind an identifier to a thread.
unsafe impl Send for NewId {}

impl NewId {
    fn into_raw(self) -> NonNull<rdma_cm_id> {
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so the channel is read out exactly once.
        drop(unsafe { ptr::read(&raw const this.channel) });
        this.raw
    }
}

impl Drop for NewId {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the identifier, and all of its events are acknowledged.
        // Destroying it makes the kernel reject the request.
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
    fn unknown_event_types_are_shown_as_numbers() {
        assert_eq!(CmEventType(9).to_string(), "ESTABLISHED");
        assert_eq!(CmEventType(99).to_string(), "unknown (99)");
    }
}
