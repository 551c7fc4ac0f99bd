//! The receiving half of an extended reliable connection.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use rdma_sys::{
    IBV_QP_INIT_ATTR_XRCD, IBV_QP_OPEN_ATTR_CONTEXT, IBV_QP_OPEN_ATTR_NUM, IBV_QP_OPEN_ATTR_TYPE,
    IBV_QP_OPEN_ATTR_XRCD, ibv_create_qp_ex, ibv_destroy_qp, ibv_open_qp, ibv_qp,
    ibv_qp_init_attr_ex, ibv_qp_open_attr,
};

use crate::convert::{non_null, zero_or_errno};
use crate::error::Result;
use crate::identity::QueueId;
use crate::numbers::Qpn;
use crate::pd::{AttachedReceiver, XrcDomain};
use crate::qp::{Endpoint, RcPath};
use crate::qp::{QpAttr, QpChange, QpHandle, QpState};
use crate::raw::{AsRaw, as_raw};
use crate::transport::Transport;

/// The receiving half of an extended reliable connection (`IBV_QPT_XRC_RECV`). See [`XrcDomain`].
///
/// No requests are posted to it and none complete on it. A message goes to the
/// [`SharedReceiveQueue<Xrc>`](crate::xrc::Xrc) that its sender named. Peers can read and write
/// memory of that queue's protection domain, as far as the [path](RcPath::access) allows.
///
/// # Example
/// ```no_run
/// use ibverbs::{Endpoint, RcPath, xrc::XrcDomain};
/// # fn f(xrcd: &XrcDomain, path: RcPath, exchange: impl Fn(Endpoint) -> Endpoint) -> ibverbs::Result<()> {
/// let mut receiver = xrcd.create_xrc_recv_qp()?;
/// receiver.init(&path)?;
/// let sender = exchange(receiver.endpoint(&path)?); // sends ours, receives theirs
/// receiver.connect(&path, &sender)?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html),
/// [`ibv_open_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_open_qp.3.html); IBA annex A14
#[doc(alias = "ibv_create_qp_ex")]
#[doc(alias = "ibv_open_qp")]
pub struct XrcRecvQueuePair {
    raw: NonNull<ibv_qp>,
    id: QueueId,
    /// Leaked if the queue pair cannot be destroyed.
    attached: ManuallyDrop<AttachedReceiver>,
}

// SAFETY: libibverbs allows any thread to query, modify and destroy a queue pair.
unsafe impl Send for XrcRecvQueuePair {}
// SAFETY: `&self` only queries the queue pair, which is thread-safe.
unsafe impl Sync for XrcRecvQueuePair {}

impl XrcDomain {
    /// Creates the receiving half of an extended reliable connection, in state RESET.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no XRC.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_xrc_recv_qp(&self) -> Result<XrcRecvQueuePair> {
        let id = QueueId::next()?;
        let mut attr = ibv_qp_init_attr_ex {
            qp_context: id.as_context(),
            qp_type: Transport::XrcRecv.qp_type().0,
            comp_mask: IBV_QP_INIT_ATTR_XRCD,
            xrcd: self.as_raw(),
            ..Default::default()
        };
        let what = || {
            format!(
                "{} queue pair on {}",
                Transport::XrcRecv,
                self.context().device_name()
            )
        };
        let _numbers = self.context().lock_numbers();
        let raw = non_null("ibv_create_qp_ex", what, || {
            // SAFETY: the domain is alive and the attributes are valid during the call.
            unsafe { ibv_create_qp_ex(self.context().as_raw(), &raw mut attr) }
        })?;
        Ok(XrcRecvQueuePair {
            raw,
            id,
            attached: ManuallyDrop::new(self.attach()),
        })
    }

    /// Opens an existing receiving half of the same domain by its number, for example one that
    /// another process created. It exists until every handle to it is closed.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) or
    /// [`NotFound`](crate::ErrorKind::NotFound) if the domain has none with this number.
    #[doc(alias = "ibv_open_qp")]
    pub fn open_xrc_recv_qp(&self, qp_num: Qpn) -> Result<XrcRecvQueuePair> {
        let id = QueueId::next()?;
        let mut attr = ibv_qp_open_attr {
            comp_mask: IBV_QP_OPEN_ATTR_NUM
                | IBV_QP_OPEN_ATTR_XRCD
                | IBV_QP_OPEN_ATTR_CONTEXT
                | IBV_QP_OPEN_ATTR_TYPE,
            qp_num: qp_num.0,
            xrcd: self.as_raw(),
            qp_context: id.as_context(),
            qp_type: Transport::XrcRecv.qp_type().0,
        };
        let what = || {
            format!(
                "{} queue pair {qp_num} on {}",
                Transport::XrcRecv,
                self.context().device_name()
            )
        };
        let raw = non_null("ibv_open_qp", what, || {
            // SAFETY: the domain is alive and the attributes are valid during the call.
            unsafe { ibv_open_qp(self.context().as_raw(), &raw mut attr) }
        })?;
        Ok(XrcRecvQueuePair {
            raw,
            id,
            attached: ManuallyDrop::new(self.attach()),
        })
    }
}

impl XrcRecvQueuePair {
    fn handle(&self) -> QpHandle<'_> {
        let context = self.xrcd().context();
        // SAFETY: `self` keeps the queue pair alive, and it belongs to the context of its domain.
        unsafe {
            let number = QpHandle::number(self.raw);
            QpHandle::new(Some(self.raw), number, Transport::XrcRecv, context)
        }
    }

    /// Returns the identity of the queue pair in this process, which
    /// [events](crate::event::EventSource) report.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Returns the number of the queue pair, which the peer needs.
    pub fn qp_num(&self) -> Qpn {
        self.handle().qp_num()
    }

    /// Returns the XRC domain of the queue pair.
    pub fn xrcd(&self) -> &XrcDomain {
        self.attached.domain()
    }

    /// Returns the endpoint that the peer needs to connect. See
    /// [`QueuePair::endpoint`](crate::QueuePair::endpoint).
    ///
    /// # Errors
    /// Same as [`QueuePair::endpoint`](crate::QueuePair::endpoint).
    pub fn endpoint(&self, path: &RcPath) -> Result<Endpoint> {
        self.handle().endpoint(path)
    }

    /// Moves the queue pair from RESET to INIT. See [`QueuePair::init`](crate::QueuePair::init).
    ///
    /// # Errors
    /// Same as [`QueuePair::init`](crate::QueuePair::init).
    #[doc(alias = "ibv_modify_qp")]
    pub fn init(&mut self, path: &RcPath) -> Result<()> {
        self.handle().init(path)
    }

    /// Connects the queue pair to the sending half at `remote`: moves it from INIT through RTR to
    /// RTS. See [`QueuePair::connect`](crate::QueuePair::connect).
    ///
    /// # Errors
    /// Same as [`QueuePair::connect`](crate::QueuePair::connect).
    #[doc(alias = "ibv_modify_qp")]
    pub fn connect(&mut self, path: &RcPath, remote: &Endpoint) -> Result<()> {
        self.handle().connect(path, remote)
    }

    /// Returns the state that the device reports.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        self.handle().state()
    }

    /// Queries the attributes of the queue pair.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "ibv_query_qp")]
    pub fn query(&self) -> Result<QpAttr> {
        self.handle().query()
    }

    /// Changes attributes. See [`QueuePair::modify`](crate::QueuePair::modify).
    ///
    /// # Errors
    /// Same as [`QueuePair::modify`](crate::QueuePair::modify).
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&mut self, change: &QpChange) -> Result<()> {
        self.handle().modify(change, true, None)
    }

    /// Moves the queue pair to the error state, in which it accepts no messages.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "ibv_modify_qp")]
    pub fn to_error(&mut self) -> Result<()> {
        self.handle().to_error()
    }

    /// Destroys the queue pair. Dropping it does the same, without the error.
    ///
    /// # Errors
    /// If the driver fails, the queue pair is leaked with the memory it could receive into, and
    /// counted ([`leaked_objects`](crate::leaked_objects)).
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<()> {
        ManuallyDrop::new(self).destroy_once()
    }

    /// Destroys the queue pair. Must be the last call on `self`.
    fn destroy_once(&mut self) -> Result<()> {
        let numbers = self.xrcd().context().lock_numbers();
        // SAFETY: `destroy` and `drop` are the only callers, and only one of them runs.
        let returned = unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
        drop(numbers);
        if returned == 0 {
            // SAFETY: `self` is not used after this call.
            unsafe { ManuallyDrop::drop(&mut self.attached) };
        } else {
            crate::leak::count_leaked_object();
        }
        zero_or_errno(
            "ibv_destroy_qp",
            || format!("{} queue pair", Transport::XrcRecv),
            returned,
        )
    }
}

impl Drop for XrcRecvQueuePair {
    fn drop(&mut self) {
        // A failure is counted.
        let _ = self.destroy_once();
    }
}

as_raw!(XrcRecvQueuePair: ibv_qp, raw);

impl fmt::Debug for XrcRecvQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcRecvQueuePair")
            .field("qp_num", &self.qp_num())
            .field("device", &self.xrcd().context().device_name())
            .finish_non_exhaustive()
    }
}
