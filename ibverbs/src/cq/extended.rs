//! Extended completion queues: `ibv_create_cq_ex`, and polling with `ibv_start_poll`,
//! `ibv_next_poll` and `ibv_end_poll`.
//!
//! The provider may hold a lock between `ibv_start_poll` and `ibv_end_poll`. All entries are copied
//! in between, so no lock is held while the caller reads completions.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    IBV_CQ_INIT_ATTR_MASK_FLAGS, IBV_CQ_INIT_ATTR_MASK_PD, IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
    IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_IMM,
    IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP,
    IBV_WC_GRH, IBV_WC_SUCCESS, ibv_cq, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_create_cq_ex,
    ibv_end_poll, ibv_next_poll, ibv_poll_cq_attr, ibv_start_poll, ibv_wc, ibv_wc_read_byte_len,
    ibv_wc_read_dlid_path_bits, ibv_wc_read_imm_data, ibv_wc_read_opcode, ibv_wc_read_qp_num,
    ibv_wc_read_sl, ibv_wc_read_slid, ibv_wc_read_src_qp, ibv_wc_read_vendor_err,
    ibv_wc_read_wc_flags,
};

use super::id::CqId;
use super::options::CqOptions;
use super::wc::WcFields;
use crate::convert::non_null;
use crate::error::Result;
use crate::identity::Direction;
use crate::pd::ParentDomain;
use crate::raw::AsRaw;

/// The fields of an `ibv_wc`.
const WC_FIELDS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

/// Creates an extended queue in a domain, which one thread polls. Its queue pairs are destroyed on
/// that thread too, so the provider needs no lock.
pub(crate) fn create_in_group(
    parent: &ParentDomain,
    options: CqOptions<'_>,
    id: CqId,
) -> Result<NonNull<ibv_cq>> {
    let context = parent.pd().context();
    let mut attr = ibv_cq_init_attr_ex {
        comp_mask: IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD,
        flags: IBV_CREATE_CQ_ATTR_SINGLE_THREADED,
        parent_domain: parent.as_raw(),
        ..attributes(options, id)
    };
    let what = || format!("{} entries on {}", options.depth, context.device_name());
    let raw = non_null("ibv_create_cq_ex", what, || {
        // SAFETY: context, domain and channel are alive, and the attributes are valid during the
        // call.
        unsafe { ibv_create_cq_ex(context.as_raw(), &raw mut attr) }
    })?;
    Ok(raw.cast())
}

/// Returns the attributes of a queue.
///
/// `IBV_CREATE_CQ_ATTR_SINGLE_THREADED` is not set. A queue pair can be destroyed on another thread
/// than the polling one, which needs the lock that this flag removes.
pub(crate) fn attributes(options: CqOptions<'_>, id: CqId) -> ibv_cq_init_attr_ex {
    ibv_cq_init_attr_ex {
        cqe: options.depth,
        cq_context: id.as_context(),
        channel: options.channel.map_or(ptr::null_mut(), AsRaw::as_raw),
        comp_vector: options.comp_vector,
        wc_flags: WC_FIELDS.into(),
        ..Default::default()
    }
}

/// Returns `true` if the provider has set the functions that read the fields of an `ibv_wc`. The
/// other functions that [`read`] calls are set by all providers (ci/provider_functions.md).
pub(crate) fn has_readers(cq: &ibv_cq_ex) -> bool {
    [
        cq.read_byte_len.is_some(),
        cq.read_imm_data.is_some(),
        cq.read_qp_num.is_some(),
        cq.read_src_qp.is_some(),
        cq.read_slid.is_some(),
        cq.read_sl.is_some(),
        cq.read_dlid_path_bits.is_some(),
    ]
    .into_iter()
    .all(|is_set| is_set)
}

/// Starts a poll. Returns 0 if there is a current completion, and otherwise the error number.
///
/// # Safety
/// The queue must be alive and created by `ibv_create_cq_ex`, and no other thread may poll it.
#[inline]
pub(crate) unsafe fn start_poll(cq: NonNull<ibv_cq>) -> i32 {
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    // SAFETY: guaranteed by the caller; the attributes are valid during the call.
    unsafe { ibv_start_poll(cq.cast().as_ptr(), &raw mut attr) }
}

/// Copies completions into `entries` with `read` until the queue is empty or `entries` is full, and
/// ends the poll. Returns the number of completions, at least one, and the value that the provider
/// returned last: 0, `ENOENT` or another error number.
///
/// # Safety
/// A poll must be in progress and have a current completion.
#[inline(always)]
#[allow(clippy::inline_always, reason = "measured: benches/README.md")]
pub(crate) unsafe fn copy_completions<E, const N: usize>(
    cq: NonNull<ibv_cq>,
    entries: &mut [E; N],
    read: impl Fn(*mut ibv_cq_ex, &mut E),
) -> (usize, i32) {
    let cq = cq.cast::<ibv_cq_ex>().as_ptr();
    let (mut filled, mut returned) = (0, 0);
    while returned == 0 && filled < N {
        read(cq, &mut entries[filled]);
        filled += 1;
        if filled < N {
            // SAFETY: a poll is in progress.
            returned = unsafe { ibv_next_poll(cq) };
        }
    }
    // SAFETY: a poll is in progress.
    unsafe { ibv_end_poll(cq) };
    (filled, returned)
}

/// Copies completions like [`copy_completions`], but each in a poll of its own, which it starts.
/// `ibv_next_poll` is not called.
///
/// With `skip`, `EINVAL` stands for the completion of a destroyed queue pair, which the provider
/// has consumed.
///
/// # Safety
/// Same as [`start_poll`]. No poll may be in progress.
pub(crate) unsafe fn poll_one_by_one<E, const N: usize>(
    cq: NonNull<ibv_cq>,
    entries: &mut [E; N],
    skip: bool,
    read: impl Fn(*mut ibv_cq_ex, &mut E),
) -> (usize, i32) {
    let mut filled = 0;
    while filled < N {
        // SAFETY: guaranteed by the caller.
        match unsafe { start_poll(cq) } {
            0 => {
                let cq = cq.cast().as_ptr();
                read(cq, &mut entries[filled]);
                filled += 1;
                // SAFETY: a poll is in progress.
                unsafe { ibv_end_poll(cq) };
            }
            libc::EINVAL if skip => {}
            returned => return (filled, returned),
        }
    }
    (filled, 0)
}

/// Copies the valid fields of the current completion.
///
/// # Safety
/// A poll of `cq` must be in progress and have a current completion. `cq` must have been created
/// with `WC_FIELDS` and [have their readers](has_readers).
#[inline]
pub(crate) unsafe fn read(cq: *mut ibv_cq_ex, wc: &mut ibv_wc) {
    // SAFETY: the caller guarantees a current completion and the readers of `WC_FIELDS`.
    unsafe {
        wc.status = (*cq).status;
        wc.qp_num = ibv_wc_read_qp_num(cq);
        wc.wr_id = (*cq).wr_id;
        if wc.status != IBV_WC_SUCCESS {
            wc.vendor_err = ibv_wc_read_vendor_err(cq);
            return;
        }
        wc.opcode = ibv_wc_read_opcode(cq);
        if wc.wr_id().direction() == Direction::Recv {
            wc.byte_len = ibv_wc_read_byte_len(cq);
            wc.wc_flags = ibv_wc_read_wc_flags(cq);
            if wc.wr_id().may_be_datagram() {
                wc.src_qp = ibv_wc_read_src_qp(cq);
                // An `ibv_wc` has 16 bits for the LID.
                wc.slid = u16::try_from(ibv_wc_read_slid(cq)).unwrap_or(u16::MAX);
                wc.sl = ibv_wc_read_sl(cq);
                wc.dlid_path_bits = ibv_wc_read_dlid_path_bits(cq);
            }
            if wc.wc_flags & !IBV_WC_GRH != 0 {
                // The field is a union of the immediate data and the invalidated key.
                wc.__bindgen_anon_1.imm_data = ibv_wc_read_imm_data(cq);
            }
        }
    }
}
