//! The target: it receives from any number of initiators, and they access its memory.

#![allow(unsafe_code)]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use rdma_sys::{
    IBV_QP_INIT_ATTR_PD, MLX5DV_DCTYPE_DCT, MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
    MLX5DV_QP_INIT_ATTR_MASK_DC, MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS, ibv_destroy_qp, ibv_qp,
    ibv_qp_init_attr_ex, mlx5dv_create_qp, mlx5dv_qp_init_attr,
};

use super::initiator::DcKey;
use crate::convert::{non_null, zero_or_errno};
use crate::cq::{CompletionQueue, SharedCq};
use crate::error::Result;
use crate::identity::QueueId;
use crate::numbers::Qpn;
use crate::pd::{AttachedQueuePair, ProtectionDomain};
use crate::qp::{Endpoint, Parts, QpHandle, QpState, RcPath};
use crate::raw::{AsRaw, as_raw};
use crate::srq::{SharedReceiveQueue, SrqInner};
use crate::transport::Transport;

/// A target of the dynamically connected transport. Initiators, [`QueuePair<Dc>`](super::Dc), send
/// to it if they know its number and its [key](DcKey).
///
/// No requests are posted to it. A message consumes a receive of its shared receive queue, whose
/// completion reports [`qp_num`](Self::qp_num). Initiators can read and write memory of its
/// protection domain, as far as the [path](RcPath::access) allows. It keeps both queues and the
/// domain alive.
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Endpoint, RcPath, SrqOptions, dc::DcKey, wr};
/// # fn f(path: RcPath, publish: impl Fn(Endpoint)) -> ibverbs::Result<()> {
/// let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// let (pd, cq) = (context.alloc_pd()?, context.create_cq(CqOptions::default())?);
/// let mut srq = pd.create_srq(SrqOptions::default())?;
/// let mut target = pd.create_dc_target(&cq, &srq, DcKey(0x1234))?;
/// target.start(&path)?;
/// srq.post_recv(wr::recv(pd.buf(4096)?))?;
/// publish(target.endpoint(&path)?);
/// # Ok(()) }
/// ```
#[doc(alias = "mlx5dv_create_qp")]
pub struct DcTarget {
    raw: NonNull<ibv_qp>,
    id: QueueId,
    /// Leaked if the target cannot be destroyed.
    parts: ManuallyDrop<TargetParts>,
}

/// The objects that a target keeps alive.
struct TargetParts {
    _attached: AttachedQueuePair,
    srq: Arc<SrqInner>,
    cq: Arc<SharedCq>,
    pd: ProtectionDomain,
}

// SAFETY: libibverbs allows any thread to query, modify and destroy a queue pair.
unsafe impl Send for DcTarget {}
// SAFETY: `&self` only queries the queue pair, which is thread-safe.
unsafe impl Sync for DcTarget {}

impl ProtectionDomain {
    /// Creates a target of the dynamically connected transport, in state RESET. It takes its
    /// receives from `srq`, and they complete on `cq`.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no DC.
    /// - [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if a queue belongs to another device
    ///   or the shared receive queue to another protection domain.
    #[doc(alias = "mlx5dv_create_qp")]
    pub fn create_dc_target(
        &self,
        cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        key: DcKey,
    ) -> Result<DcTarget> {
        Parts {
            pd: self,
            send_cq: cq,
            recv_cq: Some(cq),
            srq: Some(srq),
            parent: None,
            streams: None,
        }
        .check()?;
        if srq.shared().has_device_addresses() {
            self.context()
                .check_device_addresses("mlx5dv_create_qp", false)?;
        }
        let id = QueueId::next()?;
        let mut attr = ibv_qp_init_attr_ex {
            qp_context: id.as_context(),
            send_cq: cq.as_raw(),
            recv_cq: cq.as_raw(),
            srq: srq.as_raw(),
            qp_type: Transport::DcTarget.qp_type().0,
            comp_mask: IBV_QP_INIT_ATTR_PD,
            pd: self.as_raw(),
            ..Default::default()
        };
        let mut driver = mlx5dv_qp_init_attr {
            comp_mask: (MLX5DV_QP_INIT_ATTR_MASK_DC | MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS)
                .into(),
            // See `Avoided::SCATTER_TO_CQE`.
            create_flags: MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
            ..Default::default()
        };
        driver.dc_init_attr.dc_type = MLX5DV_DCTYPE_DCT;
        driver.dc_init_attr.__bindgen_anon_1.dct_access_key = key.0;
        let what = || {
            format!(
                "{} on {}",
                Transport::DcTarget,
                self.context().device_name()
            )
        };
        let raw = non_null("mlx5dv_create_qp", what, || {
            // SAFETY: domain and queues are alive and of one context; the attributes are valid
            // during the call. libmlx5 accepts contexts of all providers.
            unsafe { mlx5dv_create_qp(self.context().as_raw(), &raw mut attr, &raw mut driver) }
        })?;
        let parts = TargetParts {
            _attached: self.attach_queue_pair(),
            srq: Arc::clone(srq.shared()),
            cq: Arc::clone(cq.inner()),
            pd: self.clone(),
        };
        Ok(DcTarget {
            raw,
            id,
            parts: ManuallyDrop::new(parts),
        })
    }
}

impl DcTarget {
    fn handle(&self) -> QpHandle<'_> {
        let context = self.parts.pd.context();
        // SAFETY: `self` keeps the queue pair alive, and it belongs to the context of its domain.
        unsafe {
            let number = QpHandle::number(self.raw);
            QpHandle::new(Some(self.raw), number, Transport::DcTarget, context)
        }
    }

    /// Returns the identity of the target in this process, which
    /// [events](crate::event::EventSource) report.
    pub fn id(&self) -> QueueId {
        self.id
    }

    /// Returns the number of the target, which initiators need. The device assigns it when the
    /// target is [started](Self::start).
    pub fn qp_num(&self) -> Qpn {
        self.handle().qp_num()
    }

    /// Returns the protection domain of the target.
    pub fn pd(&self) -> &ProtectionDomain {
        &self.parts.pd
    }

    /// Returns the endpoint that initiators need: the number of the target and the address of the
    /// port. The target must be [started](Self::start).
    ///
    /// # Errors
    /// Same as [`QueuePair::endpoint`](crate::QueuePair::endpoint).
    pub fn endpoint(&self, path: &RcPath) -> Result<Endpoint> {
        self.handle().endpoint(path)
    }

    /// Moves the target from RESET through INIT to RTR. Initiators can then send to it. The path
    /// sets the port, the MTU, the time between retries and the access to memory.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if the target is in another
    /// state or the port does not exist.
    #[doc(alias = "ibv_modify_qp")]
    pub fn start(&mut self, path: &RcPath) -> Result<()> {
        self.handle().start_dc(path)?;
        // libmlx5 removes the completions of a target that is destroyed.
        let members = self.parts.srq.members();
        members.replace(self.qp_num(), self.id);
        Ok(())
    }

    /// Returns the state that the device reports.
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "ibv_query_qp")]
    pub fn state(&self) -> Result<QpState> {
        self.handle().state()
    }

    /// Destroys the target. Dropping it does the same, without the error.
    ///
    /// # Errors
    /// If the driver fails, the target is leaked with the memory it could receive into, and counted
    /// ([`leaked_objects`](crate::leaked_objects)).
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(self) -> Result<()> {
        ManuallyDrop::new(self).destroy_once()
    }

    /// Destroys the target. Must be the last call on `self`.
    fn destroy_once(&mut self) -> Result<()> {
        let number = self.qp_num();
        // SAFETY: `destroy` and `drop` are the only callers, and only one of them runs.
        let returned = unsafe { ibv_destroy_qp(self.raw.as_ptr()) };
        if returned == 0 {
            let TargetParts { srq, cq, .. } = &*self.parts;
            srq.members().remove(number, self.id, cq);
            // SAFETY: `self` is not used after this call.
            unsafe { ManuallyDrop::drop(&mut self.parts) };
        } else {
            crate::leak::count_leaked_object();
        }
        let what = || Transport::DcTarget.to_string();
        zero_or_errno("ibv_destroy_qp", what, returned)
    }
}

impl Drop for DcTarget {
    fn drop(&mut self) {
        // The failure is counted.
        let _ = self.destroy_once();
    }
}

as_raw!(DcTarget: ibv_qp, raw);

impl fmt::Debug for DcTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DcTarget")
            .field("qp_num", &self.qp_num())
            .field("device", &self.parts.pd.context().device_name())
            .finish_non_exhaustive()
    }
}
