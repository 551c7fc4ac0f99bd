//! The receiving half of an extended reliable connection: no requests, no completions, only a
//! state.

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
use crate::qp::{Control, QpAttr, QpChange, QpState};
use crate::qp::{Endpoint, RcPath};
use crate::raw::AsRaw;
use crate::transport::QpType;

/// The receiving half of an extended reliable connection (`IBV_QPT_XRC_RECV`). See [`XrcDomain`].
///
/// Nothing is posted to it, and nothing completes on it: what arrives goes to the
/// [`SharedReceiveQueue<Xrc>`](crate::xrc::Xrc) that the sender named. What peers may read and
/// write is the memory of that queue's protection domain, as far as the [path](RcPath::access)
/// allows.
///
/// # Example
/// ```no_run
/// use ibverbs::{Endpoint, RcPath, xrc::XrcDomain};
/// # fn f(xrcd: &XrcDomain, path: RcPath, exchange: impl Fn(Endpoint) -> Endpoint) -> ibverbs::Result<()> {
/// let mut receiver = xrcd.create_xrc_recv_qp()?;
/// receiver.init(&path)?;
/// let sender = exchange(receiver.endpoint(&path)?); // ours for theirs
/// receiver.connect(&path, &sender)?; // messages go to the shared receive queues of the domain
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html),
/// [`ibv_open_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_open_qp.3.html); IBA annex A14
pub struct XrcRecvQueuePair {
    raw: NonNull<ibv_qp>,
    id: QueueId,
    /// Kept for ever if it cannot be destroyed.
    attached: ManuallyDrop<AttachedReceiver>,
}

// SAFETY: the library's functions on a queue pair that nothing is posted to are thread safe.
unsafe impl Send for XrcRecvQueuePair {}
// SAFETY: as above; its state is changed through `&mut self` only.
unsafe impl Sync for XrcRecvQueuePair {}

impl XrcDomain {
    /// Creates the receiving half of an extended reliable connection, in state RESET.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the device has no XRC.
    ///
    /// # References
    /// [`ibv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html)
    pub fn create_xrc_recv_qp(&self) -> Result<XrcRecvQueuePair> {
        let id = QueueId::next()?;
        let mut attr = ibv_qp_init_attr_ex {
            qp_context: id.as_context(),
            qp_type: QpType::XRC_RECV.0,
            comp_mask: IBV_QP_INIT_ATTR_XRCD,
            xrcd: self.as_raw(),
            ..Default::default()
        };
        let what = || {
            format!(
                "{} queue pair on {}",
                QpType::XRC_RECV,
                self.context().device_name()
            )
        };
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

    /// Opens a receiving half that another process, or another part of this one, created in the
    /// same domain, by its number: it lives on until the last who opened it lets go.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) or
    /// [`NotFound`](crate::ErrorKind::NotFound) when the domain has none of this number.
    ///
    /// # References
    /// [`ibv_open_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_open_qp.3.html)
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
            qp_type: QpType::XRC_RECV.0,
        };
        let what = || {
            format!(
                "{} queue pair {qp_num} on {}",
                QpType::XRC_RECV,
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
    fn control(&self) -> Control<'_> {
        // SAFETY: the queue pair is alive while it is borrowed, and of its domain's context.
        unsafe { Control::new(self.raw, QpType::XRC_RECV, self.xrcd().context()) }
    }

    /// Which queue pair of this process this is, as [events](crate::event::EventSource) say.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Its number on the device, for the peer.
    pub fn qp_num(&self) -> Qpn {
        self.control().qp_num()
    }

    /// The XRC domain that it belongs to.
    pub fn xrcd(&self) -> &XrcDomain {
        self.attached.domain()
    }

    /// What to tell the peer. See [`QueuePair::endpoint`](crate::QueuePair::endpoint).
    ///
    /// # Errors
    /// As there.
    pub fn endpoint(&self, path: &RcPath) -> Result<Endpoint> {
        self.control().endpoint(path)
    }

    /// Moves the queue pair from RESET to INIT. See [`QueuePair::init`](crate::QueuePair::init).
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn init(&mut self, path: &RcPath) -> Result<()> {
        self.control().init(path)
    }

    /// Moves the queue pair from INIT through RTR to RTS: connected to the sending half at
    /// `remote`. See [`QueuePair::connect`](crate::QueuePair::connect).
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn connect(&mut self, path: &RcPath, remote: &Endpoint) -> Result<()> {
        self.control().connect(path, remote)
    }

    /// The state that the device reports.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_query_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
    pub fn state(&self) -> Result<QpState> {
        self.control().state()
    }

    /// What the queue pair is set to.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_query_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_query_qp.3.html)
    pub fn query(&self) -> Result<QpAttr> {
        self.control().query()
    }

    /// Changes what `change` says. See [`QueuePair::modify`](crate::QueuePair::modify).
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn modify(&mut self, change: &QpChange) -> Result<()> {
        self.control().modify(change, true, None)
    }

    /// Puts the queue pair into the error state: it takes no more messages.
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn to_error(&mut self) -> Result<()> {
        self.control().to_error()
    }

    /// Destroys the queue pair, which dropping it does too.
    ///
    /// # Errors
    /// If the driver refuses, it is leaked and counted ([`leaked_objects`](crate::leaked_objects)),
    /// with what it could still receive into.
    ///
    /// # References
    /// [`ibv_destroy_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_destroy_qp.3.html)
    pub fn destroy(self) -> Result<()> {
        ManuallyDrop::new(self).end()
    }

    /// Called once, last.
    fn end(&mut self) -> Result<()> {
        // SAFETY: made by `XrcDomain`, destroyed once.
        let returned = unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
        if returned == 0 {
            // SAFETY: not used after: the caller is the last to use it.
            unsafe { ManuallyDrop::drop(&mut self.attached) };
        } else {
            crate::leak::count_leaked_object();
        }
        zero_or_errno(
            "ibv_destroy_qp",
            || format!("{} queue pair", QpType::XRC_RECV),
            returned,
        )
    }
}

impl Drop for XrcRecvQueuePair {
    fn drop(&mut self) {
        let _ = self.end(); // a failure is counted
    }
}

impl AsRaw for XrcRecvQueuePair {
    type Raw = ibv_qp;

    fn as_raw(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for XrcRecvQueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcRecvQueuePair")
            .field("qp_num", &self.qp_num())
            .field("device", &self.xrcd().context().device_name())
            .finish_non_exhaustive()
    }
}
