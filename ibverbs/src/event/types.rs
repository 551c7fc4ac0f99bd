//! Asynchronous events as values: the type of event and the affected object.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::ibv_async_event;

use crate::cq::CqId;
use crate::identity::QueueId;
use crate::numbers::Qpn;
use rdma_types::c_value;

c_value! {
    /// The type of an asynchronous event (`enum ibv_event_type`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::event::EventType;
    /// let events = context.async_events()?;
    /// while let Some(event) = events.try_next()? {
    ///     if event.event_type == EventType::GID_CHANGE {
    ///         println!("the port now has {} GIDs", context.gids(1)?.len());
    ///     }
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html); IBA 11.6.3
    #[doc(alias = "ibv_get_async_event")]
    pub struct EventType(u32) {
        /// A completion queue overflowed or failed: `IBV_EVENT_CQ_ERR`.
        CQ_ERR = rdma_sys::IBV_EVENT_CQ_ERR => "CQ error",
        /// A queue pair failed: `IBV_EVENT_QP_FATAL`.
        QP_FATAL = rdma_sys::IBV_EVENT_QP_FATAL => "local work queue catastrophic error",
        /// A queue pair received an invalid request: `IBV_EVENT_QP_REQ_ERR`.
        QP_REQ_ERR = rdma_sys::IBV_EVENT_QP_REQ_ERR => "invalid request local work queue error",
        /// A queue pair received a request for memory without access rights:
        /// `IBV_EVENT_QP_ACCESS_ERR`.
        QP_ACCESS_ERR = rdma_sys::IBV_EVENT_QP_ACCESS_ERR => "local access violation work queue error",
        /// The first packet arrived before the connection manager completed: `IBV_EVENT_COMM_EST`.
        COMM_EST = rdma_sys::IBV_EVENT_COMM_EST => "communication established",
        /// A queue pair in the SQD state has completed its sends: `IBV_EVENT_SQ_DRAINED`.
        SQ_DRAINED = rdma_sys::IBV_EVENT_SQ_DRAINED => "send queue drained",
        /// The connection has migrated to the alternate path: `IBV_EVENT_PATH_MIG`.
        PATH_MIG = rdma_sys::IBV_EVENT_PATH_MIG => "path migrated",
        /// Migration to the alternate path failed: `IBV_EVENT_PATH_MIG_ERR`.
        PATH_MIG_ERR = rdma_sys::IBV_EVENT_PATH_MIG_ERR => "path migration request error",
        /// The device failed or is being removed: `IBV_EVENT_DEVICE_FATAL`.
        DEVICE_FATAL = rdma_sys::IBV_EVENT_DEVICE_FATAL => "local catastrophic error",
        /// A port became active: `IBV_EVENT_PORT_ACTIVE`.
        PORT_ACTIVE = rdma_sys::IBV_EVENT_PORT_ACTIVE => "port active",
        /// A port went down: `IBV_EVENT_PORT_ERR`.
        PORT_ERR = rdma_sys::IBV_EVENT_PORT_ERR => "port error",
        /// A port has another LID: `IBV_EVENT_LID_CHANGE`.
        LID_CHANGE = rdma_sys::IBV_EVENT_LID_CHANGE => "LID change",
        /// The P_Key table of a port has changed: `IBV_EVENT_PKEY_CHANGE`.
        PKEY_CHANGE = rdma_sys::IBV_EVENT_PKEY_CHANGE => "P_Key change",
        /// A port has another subnet manager: `IBV_EVENT_SM_CHANGE`.
        SM_CHANGE = rdma_sys::IBV_EVENT_SM_CHANGE => "SM change",
        /// A shared receive queue failed: `IBV_EVENT_SRQ_ERR`.
        SRQ_ERR = rdma_sys::IBV_EVENT_SRQ_ERR => "SRQ catastrophic error",
        /// A shared receive queue has fewer receives than its limit: `IBV_EVENT_SRQ_LIMIT_REACHED`.
        SRQ_LIMIT_REACHED = rdma_sys::IBV_EVENT_SRQ_LIMIT_REACHED => "SRQ limit reached",
        /// A queue pair in the error state consumes no more receives of its shared receive queue:
        /// `IBV_EVENT_QP_LAST_WQE_REACHED`.
        QP_LAST_WQE_REACHED = rdma_sys::IBV_EVENT_QP_LAST_WQE_REACHED => "last WQE reached",
        /// The subnet manager requests that clients register again: `IBV_EVENT_CLIENT_REREGISTER`.
        CLIENT_REREGISTER = rdma_sys::IBV_EVENT_CLIENT_REREGISTER => "client reregistration",
        /// The GID table of a port has changed: `IBV_EVENT_GID_CHANGE`.
        GID_CHANGE = rdma_sys::IBV_EVENT_GID_CHANGE => "GID table change",
        /// A work queue failed: `IBV_EVENT_WQ_FATAL`.
        WQ_FATAL = rdma_sys::IBV_EVENT_WQ_FATAL => "WQ fatal",
        /// The speed of one or several ports has changed: `IBV_EVENT_DEVICE_SPEED_CHANGE`.
        DEVICE_SPEED_CHANGE = rdma_sys::IBV_EVENT_DEVICE_SPEED_CHANGE => "device speed change",
    }
}

/// The object that an event is about.
///
/// Objects are named by identity, which stays valid after the object was dropped. Identities are
/// those of objects created by this crate; for an object created with raw calls, the identity is
/// the value of its context pointer.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, Rc,
///     event::{AsyncEvent, EventSource},
/// };
/// # fn f(event: AsyncEvent, qp: &QueuePair<Rc>) {
/// match event.source {
///     EventSource::Device => println!("the whole device: {}", event.event_type),
///     EventSource::Port(port) => println!("port {port}: {}", event.event_type),
///     EventSource::QueuePair { queue, .. } if queue == qp.id() => {
///         println!("ours: {}", event.event_type)
///     }
///     other => println!("{other}"),
/// }
/// # }
/// ```
#[doc(alias = "ibv_get_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventSource {
    /// The device.
    Device,
    /// A port, numbered from 1.
    Port(u8),
    /// A completion queue, by [`CompletionQueue::id`](crate::CompletionQueue::id).
    CompletionQueue(CqId),
    /// A queue pair, by [`QueuePair::id`](crate::QueuePair::id) and by its number on the device.
    #[allow(missing_docs, reason = "described in the variant's documentation")]
    QueuePair { queue: QueueId, qp_num: Qpn },
    /// A shared receive queue, by its identity.
    SharedReceiveQueue(QueueId),
    /// A raw packet work queue, by its number on the device.
    WorkQueue(u32),
    /// The port number field of an event whose type this version does not know.
    Unknown(i32),
}

/// An asynchronous event of a device, a port or a queue.
///
/// This is a plain value: the event was acknowledged when it was read.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// let events = context.async_events()?;
/// if let Some(event) = events.wait(Some(std::time::Duration::from_secs(1)))? {
///     println!("{event}"); // port 1: port error
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_get_async_event")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// The type of event.
    pub event_type: EventType,
    /// The affected object.
    pub source: EventSource,
}

impl EventType {
    /// Returns `true` if the event is about an object, whose address it has, and not about the
    /// device or a port.
    pub(super) fn has_object(self) -> bool {
        let port_or_device = [
            Self::DEVICE_FATAL,
            Self::DEVICE_SPEED_CHANGE,
            Self::PORT_ACTIVE,
            Self::PORT_ERR,
            Self::LID_CHANGE,
            Self::PKEY_CHANGE,
            Self::SM_CHANGE,
            Self::CLIENT_REREGISTER,
            Self::GID_CHANGE,
        ];
        self.name().is_some() && !port_or_device.contains(&self)
    }
}

impl AsyncEvent {
    /// Copies the identity of the affected object.
    ///
    /// # Safety
    /// The event must have been returned by `ibv_get_async_event` and not be acknowledged yet,
    /// which keeps its object alive.
    pub(crate) unsafe fn from_raw(raw: &ibv_async_event) -> Self {
        let event_type = EventType(raw.event_type);
        let element = &raw.element;
        let source = match event_type {
            EventType::CQ_ERR => {
                // SAFETY: an unacknowledged event of this type refers to a live completion queue.
                EventSource::CompletionQueue(CqId::from_context(unsafe {
                    (*element.cq).cq_context
                }))
            }
            EventType::QP_FATAL
            | EventType::QP_REQ_ERR
            | EventType::QP_ACCESS_ERR
            | EventType::COMM_EST
            | EventType::SQ_DRAINED
            | EventType::PATH_MIG
            | EventType::PATH_MIG_ERR
            | EventType::QP_LAST_WQE_REACHED => {
                // SAFETY: an unacknowledged event of this type refers to a live queue pair.
                let (context, number) = unsafe { ((*element.qp).qp_context, (*element.qp).qp_num) };
                EventSource::QueuePair {
                    queue: QueueId::from_context(context),
                    qp_num: Qpn(number),
                }
            }
            EventType::SRQ_ERR | EventType::SRQ_LIMIT_REACHED => {
                // SAFETY: an unacknowledged event of this type refers to a live shared receive
                // queue.
                EventSource::SharedReceiveQueue(QueueId::from_context(unsafe {
                    (*element.srq).srq_context
                }))
            }
            EventType::WQ_FATAL => {
                // SAFETY: an unacknowledged event of this type refers to a live work queue.
                EventSource::WorkQueue(unsafe { (*element.wq).wq_num })
            }
            EventType::DEVICE_FATAL | EventType::DEVICE_SPEED_CHANGE => EventSource::Device,
            // SAFETY: the library initialized at least the bytes of the port number.
            other => Self::source_from_number(other, unsafe { element.port_num }),
        };
        Self { event_type, source }
    }

    /// Returns the source of an event that has a number instead of an object.
    fn source_from_number(event_type: EventType, number: i32) -> EventSource {
        match (event_type.name(), u8::try_from(number)) {
            (Some(_), Ok(port)) => EventSource::Port(port),
            _ => EventSource::Unknown(number),
        }
    }
}

impl fmt::Display for EventSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device => f.write_str("the device"),
            Self::Port(port) => write!(f, "port {port}"),
            Self::CompletionQueue(id) => write!(f, "completion queue {id:?}"),
            Self::QueuePair { qp_num, .. } => write!(f, "queue pair {qp_num}"),
            Self::SharedReceiveQueue(id) => write!(f, "shared receive queue {}", id.get()),
            Self::WorkQueue(number) => write!(f, "work queue {number}"),
            Self::Unknown(number) => write!(f, "number {number}"),
        }
    }
}

impl fmt::Display for AsyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.event_type, self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use rdma_sys::{ibv_async_event__bindgen_ty_1 as Element, ibv_cq, ibv_qp, ibv_srq};

    use super::*;

    fn event(event_type: u32, element: Element) -> AsyncEvent {
        // SAFETY: the objects of the tests are alive.
        unsafe {
            AsyncEvent::from_raw(&ibv_async_event {
                element,
                event_type,
            })
        }
    }

    fn number(port_num: i32) -> Element {
        let mut element = Element {
            cq: ptr::null_mut(),
        };
        element.port_num = port_num;
        element
    }

    #[test]
    fn events_name_objects_by_identity() {
        let queue = QueueId::next().expect("identity");
        let mut qp = ibv_qp {
            qp_context: queue.as_context(),
            qp_num: 17,
            ..Default::default()
        };
        let last = event(
            EventType::QP_LAST_WQE_REACHED.0,
            Element { qp: &raw mut qp },
        );
        assert_eq!(
            last.source,
            EventSource::QueuePair {
                queue,
                qp_num: Qpn(17)
            }
        );
        let mut srq = ibv_srq {
            srq_context: queue.as_context(),
            ..Default::default()
        };
        let limit = event(
            EventType::SRQ_LIMIT_REACHED.0,
            Element { srq: &raw mut srq },
        );
        assert_eq!(limit.source, EventSource::SharedReceiveQueue(queue));
        let mut cq = ibv_cq {
            cq_context: ptr::without_provenance_mut(5),
            ..Default::default()
        };
        let overflow = event(EventType::CQ_ERR.0, Element { cq: &raw mut cq });
        assert_eq!(
            overflow.source,
            EventSource::CompletionQueue(CqId::from_context(ptr::without_provenance_mut(5)))
        );
    }

    #[test]
    fn events_without_object_name_port_or_device() {
        assert_eq!(
            event(EventType::PORT_ERR.0, number(2)).to_string(),
            "port error: port 2"
        );
        assert_eq!(
            event(EventType::DEVICE_FATAL.0, number(0)).source,
            EventSource::Device
        );
    }

    #[test]
    fn unknown_event_type_dereferences_nothing() {
        let unknown = event(4711, number(77));
        assert_eq!(
            (unknown.event_type, unknown.source),
            (EventType(4711), EventSource::Unknown(77))
        );
        assert_eq!(unknown.to_string(), "unknown (4711): number 77");
    }
}
