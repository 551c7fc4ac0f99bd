//! Direct verbs of EFA.

use core::ffi::c_int;

use super::call;
use crate::{efadv_cq, ibv_gid};

/// Reads the GID of the sender of the current completion. Returns −ENOENT if the device knows an
/// address handle for it, so that the completion has no GID.
///
/// # Safety
/// `cq` must be live, created with `EFADV_WC_EX_WITH_SGID`, and a poll must be in progress. `sgid`
/// must be writable.
#[inline]
pub unsafe fn efadv_wc_read_sgid(cq: *mut efadv_cq, sgid: *mut ibv_gid) -> c_int {
    // SAFETY: the caller guarantees that the queue was created with the field.
    unsafe { call!((*cq).wc_read_sgid, cq, sgid) }
}
