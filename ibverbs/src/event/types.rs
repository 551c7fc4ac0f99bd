//! Asynchronous events as values: what happened, and to what.

#![allow(unsafe_code)]

use std::fmt;

use rdma_sys::ibv_async_event;

use crate::cq::CqId;
use crate::identity::QueueId;
use crate::newtype::c_value;
use crate::numbers::Qpn;

c_value! {
    /// What happened (`enum ibv_event_type`).
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::event::EventType;
    /// let events = context.async_events()?;
    /// while let Some(event) = events.try_get()? {
    ///     if event.event_type == EventType::GID_CHANGE {
    ///         println!("look at the GIDs again: {}", context.gids(1)?.len());
    ///     }
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html); IBA 11.6.3
    pub struct EventType(u32) {
        /// A completion queue overflowed or broke: `IBV_EVENT_CQ_ERR`.
        CQ_ERR = rdma_sys::IBV_EVENT_CQ_ERR => "CQ error",
        /// A queue pair broke: `IBV_EVENT_QP_FATAL`.
        QP_FATAL = rdma_sys::IBV_EVENT_QP_FATAL => "local work queue catastrophic error",
        /// A queue pair got an invalid request: `IBV_EVENT_QP_REQ_ERR`.
        QP_REQ_ERR = rdma_sys::IBV_EVENT_QP_REQ_ERR => "invalid request local work queue error",
        /// A queue pair got a request to memory that it may not touch: `IBV_EVENT_QP_ACCESS_ERR`.
        QP_ACCESS_ERR = rdma_sys::IBV_EVENT_QP_ACCESS_ERR => "local access violation work queue error",
        /// The peer spoke before the connection manager said so: `IBV_EVENT_COMM_EST`.
        COMM_EST = rdma_sys::IBV_EVENT_COMM_EST => "communication established",
        /// A queue pair in SQD has finished its sends: `IBV_EVENT_SQ_DRAINED`.
        SQ_DRAINED = rdma_sys::IBV_EVENT_SQ_DRAINED => "send queue drained",
        /// The alternate path is in use: `IBV_EVENT_PATH_MIG`.
        PATH_MIG = rdma_sys::IBV_EVENT_PATH_MIG => "path migrated",
        /// The alternate path could not be taken: `IBV_EVENT_PATH_MIG_ERR`.
        PATH_MIG_ERR = rdma_sys::IBV_EVENT_PATH_MIG_ERR => "path migration request error",
        /// The device broke, or goes away: `IBV_EVENT_DEVICE_FATAL`.
        DEVICE_FATAL = rdma_sys::IBV_EVENT_DEVICE_FATAL => "local catastrophic error",
        /// A port came up: `IBV_EVENT_PORT_ACTIVE`.
        PORT_ACTIVE = rdma_sys::IBV_EVENT_PORT_ACTIVE => "port active",
        /// A port went down: `IBV_EVENT_PORT_ERR`.
        PORT_ERR = rdma_sys::IBV_EVENT_PORT_ERR => "port error",
        /// `IBV_EVENT_LID_CHANGE`.
        LID_CHANGE = rdma_sys::IBV_EVENT_LID_CHANGE => "LID change",
        /// `IBV_EVENT_PKEY_CHANGE`.
        PKEY_CHANGE = rdma_sys::IBV_EVENT_PKEY_CHANGE => "P_Key change",
        /// `IBV_EVENT_SM_CHANGE`.
        SM_CHANGE = rdma_sys::IBV_EVENT_SM_CHANGE => "SM change",
        /// A shared receive queue broke: `IBV_EVENT_SRQ_ERR`.
        SRQ_ERR = rdma_sys::IBV_EVENT_SRQ_ERR => "SRQ catastrophic error",
        /// A shared receive queue has fewer receives than its limit: `IBV_EVENT_SRQ_LIMIT_REACHED`.
        SRQ_LIMIT_REACHED = rdma_sys::IBV_EVENT_SRQ_LIMIT_REACHED => "SRQ limit reached",
        /// A queue pair in error takes no more of its shared receive queue: `IBV_EVENT_QP_LAST_WQE_REACHED`.
        QP_LAST_WQE_REACHED = rdma_sys::IBV_EVENT_QP_LAST_WQE_REACHED => "last WQE reached",
        /// The subnet manager wants everything registered anew: `IBV_EVENT_CLIENT_REREGISTER`.
        CLIENT_REREGISTER = rdma_sys::IBV_EVENT_CLIENT_REREGISTER => "client reregistration",
        /// `IBV_EVENT_GID_CHANGE`.
        GID_CHANGE = rdma_sys::IBV_EVENT_GID_CHANGE => "GID table change",
        /// A work queue broke: `IBV_EVENT_WQ_FATAL`.
        WQ_FATAL = rdma_sys::IBV_EVENT_WQ_FATAL => "WQ fatal",
    }
}

/// What an event is about: identities, which outlive their objects.
///
/// Those of queues are of objects that this crate made; for an object made by raw calls they are
/// whatever its maker put into its context pointer.
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
///
/// # References
/// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventSource {
    /// The whole device.
    Device,
    /// A port, from 1.
    Port(u8),
    /// A completion queue, by [`CompletionQueue::id`](crate::CompletionQueue::id).
    CompletionQueue(CqId),
    /// A queue pair, by [`QueuePair::id`](crate::QueuePair::id), and its number on the device.
    #[allow(missing_docs, reason = "said above")]
    QueuePair { queue: QueueId, qp_num: Qpn },
    /// A shared receive queue, by its identity.
    SharedReceiveQueue(QueueId),
    /// A work queue of raw packets, by its number on the device.
    WorkQueue(u32),
    /// What an event of a type that this version does not know brought along.
    Unknown(i32),
}

/// Something that happened to a device, a port or a queue, not asked for by a request.
///
/// It is a plain value: it was acknowledged when it was taken, and holds nothing.
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
///
/// # References
/// [`ibv_get_async_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_async_event.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AsyncEvent {
    /// What happened.
    pub event_type: EventType,
    /// To what.
    pub source: EventSource,
}

impl AsyncEvent {
    /// Copies out what an event names.
    ///
    /// # Safety
    /// The event was taken by `ibv_get_async_event` and is not yet acknowledged, so that its object
    /// is alive.
    pub(crate) unsafe fn copy(raw: &ibv_async_event) -> Self {
        let event_type = EventType(raw.event_type);
        let element = &raw.element;
        let source = match event_type {
            EventType::CQ_ERR => {
                // SAFETY: an event of this type names a live completion queue, by the caller's
                // promise.
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
                // SAFETY: as above, a live queue pair.
                let (context, number) = unsafe { ((*element.qp).qp_context, (*element.qp).qp_num) };
                EventSource::QueuePair {
                    queue: QueueId::from_context(context),
                    qp_num: Qpn(number),
                }
            }
            EventType::SRQ_ERR | EventType::SRQ_LIMIT_REACHED => {
                // SAFETY: as above, a live shared receive queue.
                EventSource::SharedReceiveQueue(QueueId::from_context(unsafe {
                    (*element.srq).srq_context
                }))
            }
            EventType::WQ_FATAL => {
                // SAFETY: as above, a live work queue.
                EventSource::WorkQueue(unsafe { (*element.wq).wq_num })
            }
            EventType::DEVICE_FATAL => EventSource::Device,
            // SAFETY: the union was filled by the library with at least the bytes of a port's
            // number.
            other => Self::by_number(other, unsafe { element.port_num }),
        };
        Self { event_type, source }
    }

    /// The source of an event that brings a number and no object.
    fn by_number(event_type: EventType, number: i32) -> EventSource {
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
        // SAFETY: the tests' objects are alive.
        unsafe {
            AsyncEvent::copy(&ibv_async_event {
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
    fn an_event_names_its_object_by_identity() {
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
    fn an_event_without_an_object_names_a_port_or_the_device() {
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
    fn an_unknown_event_is_a_value_and_nothing_is_followed() {
        let odd = event(4711, number(77));
        assert_eq!(
            (odd.event_type, odd.source),
            (EventType(4711), EventSource::Unknown(77))
        );
        assert_eq!(odd.to_string(), "unknown (4711): number 77");
    }
}
