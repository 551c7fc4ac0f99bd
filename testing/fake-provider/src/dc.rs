//! Queue pairs of the dynamically connected transport of mlx5. They change their states, but
//! requests need functions of libmlx5.

use std::ffi::c_void;

use rdma_sys::{ibv_context, ibv_qp, ibv_qp_init_attr_ex};

use crate::device::FakeDevice;
use crate::fault::Verb;
use crate::{qp, wr};

/// `mlx5dv_create_qp(3)`. The attributes of libmlx5 are not read: only an initiator has operations.
#[unsafe(no_mangle)]
unsafe extern "C" fn mlx5dv_create_qp(
    context: *mut ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
    _: *mut c_void,
) -> *mut ibv_qp {
    // SAFETY: the caller passes a valid context and valid attributes. Extended attributes begin
    // with the classic ones, so the cast is valid.
    unsafe {
        let profile = FakeDevice::from_context(context).state().profile;
        let table = wr::table((*attr).send_ops_flags, &profile);
        qp::create((*attr).pd, &mut *attr.cast(), Verb::CreateQpEx, &table)
    }
}

pub(crate) const ENTRY_POINTS: &[*const ()] = &[mlx5dv_create_qp as *const ()];
