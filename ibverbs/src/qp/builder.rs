//! Making a queue pair: what is asked for, and what the device gives.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_cq, ibv_create_qp, ibv_create_qp_ex,
    ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_to_qp_ex,
    ibv_srq,
};

use crate::convert::non_null;
use crate::cq::CompletionQueue;
use crate::error::{Error, Result};
use crate::identity::QueueId;
use crate::in_flight::Ring;
use crate::kind::ErrorKind;
use crate::pd::{ParentDomain, ProtectionDomain};
use crate::raw::AsRaw;
use crate::srq::SharedReceiveQueue;
use crate::transport::SendTransport;

/// What a queue pair is made with; the device may give more ([`QpCaps`]).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(ibverbs::CqOptions::default())?);
/// use ibverbs::{QpOptions, Rc};
/// let options = QpOptions { max_send_wr: 256, max_recv_wr: 16, max_inline_data: 64, ..QpOptions::default() };
/// let qp = pd.create_qp::<Rc>(&cq, &cq, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpOptions {
    /// Requests of the send queue that can be in flight.
    pub max_send_wr: u32,
    /// Receives that can be in flight.
    pub max_recv_wr: u32,
    /// Gather entries of a send; one at least.
    pub max_send_sge: u32,
    /// Scatter entries of a receive; one at least.
    pub max_recv_sge: u32,
    /// Bytes that a request can carry inline.
    pub max_inline_data: u32,
    /// Requests that one batch can hold.
    pub max_batch: u32,
    /// Leaves the extended verbs (`ibv_wr_*`) alone even where the provider has them.
    pub classic_only: bool,
}

impl Default for QpOptions {
    fn default() -> Self {
        Self {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            max_batch: 32,
            classic_only: false,
        }
    }
}

/// What the device gave: at least what was asked for.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, message: Buf) -> ibverbs::Result<()> {
/// if message.len() <= qp.caps().max_inline_data as usize {
///     qp.post_send(wr::send(wr::Inline(&message)))?; // the device need not fetch it
/// } else {
///     qp.post_send(wr::send(message))?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpCaps {
    /// Requests of the send queue that can be in flight.
    pub max_send_wr: u32,
    /// Receives that can be in flight.
    pub max_recv_wr: u32,
    /// Gather entries of a send.
    pub max_send_sge: u32,
    /// Scatter entries of a receive.
    pub max_recv_sge: u32,
    /// Bytes that a request can carry inline.
    pub max_inline_data: u32,
}

/// A queue pair as the library made it.
pub(crate) struct Made {
    pub(crate) raw: NonNull<ibv_qp>,
    pub(crate) extended: Option<NonNull<ibv_qp_ex>>,
    pub(crate) caps: QpCaps,
    /// Whether the provider took the operations that not all have, or decides when they are
    /// posted.
    pub(crate) has_extra_ops: bool,
}

/// What a queue pair is made of.
pub(crate) struct Parts<'a> {
    pub(crate) pd: &'a ProtectionDomain,
    pub(crate) send_cq: &'a CompletionQueue,
    /// None for what does not receive.
    pub(crate) recv_cq: Option<&'a CompletionQueue>,
    pub(crate) srq: Option<&'a SharedReceiveQueue>,
    /// The domain to make it in, if it is not `pd` itself.
    pub(crate) parent: Option<&'a ParentDomain>,
}

impl Parts<'_> {
    fn domain(&self) -> *mut ibv_pd {
        self.parent.map_or(self.pd.as_raw(), AsRaw::as_raw)
    }

    fn recv_cq(&self) -> *mut ibv_cq {
        self.recv_cq.map_or(ptr::null_mut(), AsRaw::as_raw)
    }

    fn srq(&self) -> *mut ibv_srq {
        self.srq.map_or(ptr::null_mut(), AsRaw::as_raw)
    }

    /// Whether it takes receives of its own.
    fn receives(&self) -> bool {
        self.recv_cq.is_some() && self.srq.is_none()
    }
}

/// Makes a queue pair: extended where the provider can, else classic.
pub(crate) fn make<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
) -> Result<Made> {
    let pd = parts.pd;
    for cq in [Some(parts.send_cq), parts.recv_cq].into_iter().flatten() {
        let of_queue = cq.shared().context();
        if of_queue.as_raw() != pd.context().as_raw() {
            return Err(Error::new(
                ErrorKind::Mismatch,
                "ibv_create_qp",
                format!(
                    "a domain of {} with a completion queue of {}",
                    pd.context().device_name(),
                    of_queue.device_name()
                ),
            )
            .with_hint("make both on the same opening of the device"));
        }
    }
    if let Some(srq) = parts.srq {
        if !srq.shared().pd().is(pd) {
            let (its, mine) = (
                srq.shared().pd().context().device_name(),
                pd.context().device_name(),
            );
            let what = format!(
                "a domain of {mine} with a shared receive queue of another domain on {its}"
            );
            return Err(Error::new(ErrorKind::Mismatch, "ibv_create_qp", what)
                .with_hint("make the queue pair of the shared receive queue's own domain"));
        }
    }
    if options.max_send_wr.max(options.max_recv_wr) > Ring::MAX {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "ibv_create_qp",
            describe(pd, options),
        )
        .with_hint(format!(
            "this library tells at most {} sends and as many receives in flight apart",
            Ring::MAX
        )));
    }
    // Soft-RoCE's provider gets the length of an extended send from several pieces wrong (it takes
    // every piece to be as long as the first; rdma-core pull request 1744 mends it), so such
    // sends go by the classic verbs there.
    let one_piece = pd.context().is_soft_roce()?;
    if !(options.classic_only || one_piece && options.max_send_sge > 1) {
        let all = make_extended::<T>(parts, id, options, T::EXTRA_OPS);
        let made = match all {
            None if T::EXTRA_OPS != 0 => make_extended::<T>(parts, id, options, 0),
            all => all,
        };
        if let Some(mut made) = made {
            if one_piece {
                made.caps.max_send_sge = made.caps.max_send_sge.min(1);
            }
            return Ok(made);
        }
    }
    make_classic::<T>(parts, id, options)
}

/// `None` when the provider refuses: the classic verb then says why, if it refuses too.
fn make_extended<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
    extra_ops: u64,
) -> Option<Made> {
    let mut attr = ibv_qp_init_attr_ex {
        qp_context: id.as_context(),
        send_cq: parts.send_cq.as_raw(),
        recv_cq: parts.recv_cq(),
        srq: parts.srq(),
        cap: requested(parts, options),
        qp_type: T::QP_TYPE.0,
        comp_mask: IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        pd: parts.domain(),
        send_ops_flags: T::SEND_OPS | extra_ops,
        ..Default::default()
    };
    // SAFETY: domain and queues are alive and of this context; the attributes are valid during the
    // call.
    let raw =
        NonNull::new(unsafe { ibv_create_qp_ex(parts.pd.context().as_raw(), &raw mut attr) })?;
    // SAFETY: the queue pair was just made with send operations.
    let extended = NonNull::new(unsafe { ibv_qp_to_qp_ex(raw.as_ptr()) });
    Some(Made {
        raw,
        extended,
        caps: returned(parts, &attr.cap),
        has_extra_ops: extra_ops == T::EXTRA_OPS,
    })
}

fn make_classic<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
) -> Result<Made> {
    let mut attr = ibv_qp_init_attr {
        qp_context: id.as_context(),
        send_cq: parts.send_cq.as_raw(),
        recv_cq: parts.recv_cq(),
        srq: parts.srq(),
        cap: requested(parts, options),
        qp_type: T::QP_TYPE.0,
        ..Default::default()
    };
    let raw = non_null(
        "ibv_create_qp",
        || describe(parts.pd, options),
        || {
            // SAFETY: domain and queues are alive and of one context; the attributes are valid
            // during the call.
            unsafe { ibv_create_qp(parts.domain(), &raw mut attr) }
        },
    )?;
    Ok(Made {
        raw,
        extended: None,
        caps: returned(parts, &attr.cap),
        has_extra_ops: true,
    })
}

fn describe(pd: &ProtectionDomain, options: QpOptions) -> String {
    format!(
        "{} sends, {} receives, {} and {} scatter entries, {} bytes inline on {}",
        options.max_send_wr,
        options.max_recv_wr,
        options.max_send_sge,
        options.max_recv_sge,
        options.max_inline_data,
        pd.context().device_name()
    )
}

/// A fresh structure each time: providers overwrite it with what they give. There is room for one
/// piece of memory always: Soft-RoCE's extended verbs write one without a look at how many were
/// asked for.
fn requested(parts: &Parts<'_>, options: QpOptions) -> ibv_qp_cap {
    let receives = parts.receives();
    ibv_qp_cap {
        max_send_wr: options.max_send_wr,
        max_recv_wr: if receives { options.max_recv_wr } else { 0 },
        max_send_sge: options.max_send_sge.max(1),
        max_recv_sge: if receives {
            options.max_recv_sge.max(1)
        } else {
            0
        },
        max_inline_data: options.max_inline_data,
    }
}

/// Without receives of its own a queue pair takes none, whatever the provider leaves in the field.
fn returned(parts: &Parts<'_>, cap: &ibv_qp_cap) -> QpCaps {
    QpCaps {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: if parts.receives() { cap.max_recv_wr } else { 0 },
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}
