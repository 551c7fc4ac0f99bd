//! The extended form of a completion queue: the provider hands out fields, which are copied into
//! plain entries.
//!
//! Copying under one `start_poll … end_poll` means that no lock of the provider is held while the
//! caller looks at completions.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    IBV_WC_EX_WITH_BYTE_LEN, IBV_WC_EX_WITH_DLID_PATH_BITS, IBV_WC_EX_WITH_IMM,
    IBV_WC_EX_WITH_QP_NUM, IBV_WC_EX_WITH_SL, IBV_WC_EX_WITH_SLID, IBV_WC_EX_WITH_SRC_QP,
    IBV_WC_GRH, IBV_WC_SUCCESS, ibv_cq_ex, ibv_cq_init_attr_ex, ibv_create_cq_ex, ibv_end_poll,
    ibv_next_poll, ibv_poll_cq_attr, ibv_start_poll, ibv_wc, ibv_wc_read_byte_len,
    ibv_wc_read_dlid_path_bits, ibv_wc_read_imm_data, ibv_wc_read_opcode, ibv_wc_read_qp_num,
    ibv_wc_read_sl, ibv_wc_read_slid, ibv_wc_read_src_qp, ibv_wc_read_vendor_err,
    ibv_wc_read_wc_flags,
};

use super::id::CqId;
use super::options::CqOptions;
use crate::device::Context;
use crate::error::Result;
use crate::identity::{Direction, WrId};
use crate::raw::AsRaw;

/// The fields of a classic entry.
const FIELDS: u32 = IBV_WC_EX_WITH_BYTE_LEN
    | IBV_WC_EX_WITH_IMM
    | IBV_WC_EX_WITH_QP_NUM
    | IBV_WC_EX_WITH_SRC_QP
    | IBV_WC_EX_WITH_SLID
    | IBV_WC_EX_WITH_SL
    | IBV_WC_EX_WITH_DLID_PATH_BITS;

/// Creates an extended queue; `None` when the provider refuses, and the classic verb then says why,
/// if it refuses too.
///
/// The flag for use by a single thread is not asked for: a queue pair may be destroyed on another
/// thread than the one that polls, and destroying takes the lock that the flag would remove.
pub(crate) fn create(
    context: &Context,
    options: CqOptions<'_>,
    id: CqId,
    more_fields: u32,
) -> Option<NonNull<ibv_cq_ex>> {
    let mut attr = ibv_cq_init_attr_ex {
        cqe: options.depth,
        cq_context: id.as_context(),
        channel: options.channel.map_or(ptr::null_mut(), AsRaw::as_raw),
        comp_vector: options.comp_vector,
        wc_flags: u64::from(FIELDS | more_fields),
        ..Default::default()
    };
    // SAFETY: context and channel are alive, the attributes are valid during the call.
    NonNull::new(unsafe { ibv_create_cq_ex(context.as_raw(), &raw mut attr) })
}

/// Whether each entry needs a `start_poll` and an `end_poll` of its own: the Soft-RoCE provider of
/// rdma-core 44 loses an entry when `next_poll` finds the queue empty, because `end_poll` then
/// steps past the end.
pub(crate) fn one_by_one(context: &Context) -> Result<bool> {
    context.is_soft_roce()
}

/// Fills entries from the queue, at most so many; returns how many, and what the call returned that
/// ended it, 0 at the end of the queue or of the entries. `read` fills one from the completion that
/// is current. `ONE_BY_ONE` as [above](one_by_one).
///
/// # Safety
/// The queue is alive and used by one thread; there are `count` entries, one at least.
#[inline]
pub(crate) unsafe fn poll<E, const ONE_BY_ONE: bool>(
    cq: NonNull<ibv_cq_ex>,
    entries: *mut E,
    count: u32,
    read: impl Fn(*mut ibv_cq_ex, *mut E),
) -> (u32, i32) {
    let cq = cq.as_ptr();
    let mut attr = ibv_poll_cq_attr { comp_mask: 0 };
    let mut filled = 0_u32;
    // SAFETY: the caller's promise; the attributes are valid during the call. A poll is begun,
    // once, when this or a later call returned 0; it is ended once, before another begins.
    unsafe {
        let mut returned = ibv_start_poll(cq, &raw mut attr);
        if returned != 0 {
            return (0, unless_empty(returned));
        }
        loop {
            read(cq, entries.add(filled as usize));
            filled += 1;
            if filled == count {
                break;
            }
            if ONE_BY_ONE {
                ibv_end_poll(cq);
                returned = ibv_start_poll(cq, &raw mut attr);
                if returned != 0 {
                    return (filled, unless_empty(returned));
                }
            } else {
                returned = ibv_next_poll(cq);
                if returned != 0 {
                    break;
                }
            }
        }
        ibv_end_poll(cq);
        (filled, unless_empty(returned))
    }
}

/// That there is nothing more is no error.
#[inline]
pub(crate) fn unless_empty(returned: i32) -> i32 {
    if returned == libc::ENOENT {
        0
    } else {
        returned
    }
}

/// Copies the current completion, as far as its fields are valid.
///
/// # Safety
/// An entry of `cq` must be current; `entry` can be written.
#[inline]
pub(crate) unsafe fn read(cq: *mut ibv_cq_ex, entry: *mut ibv_wc) {
    // SAFETY: an entry is current; the fields read were asked for at creation, or are always there.
    unsafe {
        (*entry).wr_id = (*cq).wr_id;
        (*entry).status = (*cq).status;
        if (*cq).status != IBV_WC_SUCCESS {
            read_failed(cq, entry);
            return;
        }
        (*entry).qp_num = ibv_wc_read_qp_num(cq);
        (*entry).opcode = ibv_wc_read_opcode(cq);
        // Read again, so that it need not be kept over the calls.
        let wr_id = WrId((*cq).wr_id);
        if wr_id.direction() == Direction::Recv {
            (*entry).byte_len = ibv_wc_read_byte_len(cq);
            (*entry).wc_flags = ibv_wc_read_wc_flags(cq);
            if WrId((*cq).wr_id).may_be_datagram() {
                read_source(cq, entry);
            }
            if (*entry).wc_flags & !IBV_WC_GRH != 0 {
                // The immediate data, or the key that the peer invalidated: the same field.
                (*entry).__bindgen_anon_1.imm_data = ibv_wc_read_imm_data(cq);
            }
        }
    }
}

/// What a completion says that is none of a success.
///
/// # Safety
/// As [`read`].
#[cold]
#[inline(never)]
unsafe fn read_failed(cq: *mut ibv_cq_ex, entry: *mut ibv_wc) {
    // SAFETY: as there.
    unsafe {
        (*entry).qp_num = ibv_wc_read_qp_num(cq);
        (*entry).vendor_err = ibv_wc_read_vendor_err(cq);
    }
}

/// The classic entry has 16 bits for it.
pub(crate) fn narrow_slid(slid: u32) -> u16 {
    u16::try_from(slid).unwrap_or(u16::MAX)
}

/// Where a datagram came from.
///
/// # Safety
/// As [`read`].
#[inline(never)]
unsafe fn read_source(cq: *mut ibv_cq_ex, entry: *mut ibv_wc) {
    // SAFETY: as there.
    unsafe {
        (*entry).src_qp = ibv_wc_read_src_qp(cq);
        (*entry).slid = narrow_slid(ibv_wc_read_slid(cq));
        (*entry).sl = ibv_wc_read_sl(cq);
        (*entry).dlid_path_bits = ibv_wc_read_dlid_path_bits(cq);
    }
}
