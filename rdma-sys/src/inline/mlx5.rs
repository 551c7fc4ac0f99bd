//! Direct verbs of mlx5: setters of the extended posting interface, and functions that pass the
//! size of a structure. The functions of the header that build or read raw work queue entries are
//! not here.

use core::ffi::{c_int, c_void};

use super::call;
use crate::{
    _mlx5dv_mkey_check, _mlx5dv_query_port, ibv_ah, ibv_context, ibv_sge, mlx5dv_clock_info,
    mlx5dv_crypto_attr, mlx5dv_mkey, mlx5dv_mkey_conf_attr, mlx5dv_mkey_err, mlx5dv_mr_interleaved,
    mlx5dv_port, mlx5dv_qp_ex, mlx5dv_sig_block_attr,
};

macro_rules! writers {
    ($($(#[$doc:meta])* $name:ident: $entry:ident($($argument:ident: $kind:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// `qp` must be live, and it must have been created with the operation that this function
        /// adds or modifies. The call must follow `ibv_wr_start` and precede `ibv_wr_complete` or
        /// `ibv_wr_abort`. Pointers must be valid for the call, and memory that the request refers
        /// to must stay valid until it has completed.
        #[inline]
        pub unsafe fn $name(qp: *mut mlx5dv_qp_ex, $($argument: $kind),*) {
            // SAFETY: the caller guarantees that the arguments are valid; the provider sets the
            // functions of the operations that the queue pair was created with.
            unsafe { call!((*qp).$entry, qp, $($argument),*) }
        }
    )*};
}

writers! {
    /// Sets the destination of a request on a DC queue pair.
    mlx5dv_wr_set_dc_addr: wr_set_dc_addr(ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64);
    /// Sets the destination and the stream of a request on a DC queue pair with streams.
    mlx5dv_wr_set_dc_addr_stream: wr_set_dc_addr_stream(ah: *mut ibv_ah, remote_dctn: u32, remote_dc_key: u64, stream_id: u16);
    /// Adds a registration of interleaved memory.
    mlx5dv_wr_mr_interleaved: wr_mr_interleaved(mkey: *mut mlx5dv_mkey, access_flags: u32, repeat_count: u32, num_interleaved: u16, data: *mut mlx5dv_mr_interleaved);
    /// Adds a registration of a list of memory.
    mlx5dv_wr_mr_list: wr_mr_list(mkey: *mut mlx5dv_mkey, access_flags: u32, num_sges: u16, sge: *mut ibv_sge);
    /// Adds a configuration of a memory key, which `num_setters` setters follow.
    mlx5dv_wr_mkey_configure: wr_mkey_configure(mkey: *mut mlx5dv_mkey, num_setters: u8, attr: *mut mlx5dv_mkey_conf_attr);
    /// Sets the access rights of the memory key.
    mlx5dv_wr_set_mkey_access_flags: wr_set_mkey_access_flags(access_flags: u32);
    /// Sets the memory of the memory key to a list.
    mlx5dv_wr_set_mkey_layout_list: wr_set_mkey_layout_list(num_sges: u16, sge: *const ibv_sge);
    /// Sets the memory of the memory key to interleaved memory.
    mlx5dv_wr_set_mkey_layout_interleaved: wr_set_mkey_layout_interleaved(repeat_count: u32, num_interleaved: u16, data: *const mlx5dv_mr_interleaved);
    /// Sets the signature attributes of the memory key.
    mlx5dv_wr_set_mkey_sig_block: wr_set_mkey_sig_block(attr: *const mlx5dv_sig_block_attr);
    /// Sets the encryption of the memory key.
    mlx5dv_wr_set_mkey_crypto: wr_set_mkey_crypto(attr: *const mlx5dv_crypto_attr);
    /// Adds a copy of memory by the adapter.
    mlx5dv_wr_memcpy: wr_memcpy(dest_lkey: u32, dest_addr: u64, src_lkey: u32, src_addr: u64, length: usize);
    /// Adds a request in the format of the adapter.
    mlx5dv_wr_raw_wqe: wr_raw_wqe(wqe: *const c_void);
}

/// Reads and clears the error of a memory key. Returns 0 or an errno.
///
/// # Safety
/// `mkey` must be live and `err_info` writable.
#[inline]
pub unsafe fn mlx5dv_mkey_check(mkey: *mut mlx5dv_mkey, err_info: *mut mlx5dv_mkey_err) -> c_int {
    // SAFETY: the caller guarantees valid arguments, and the size is that of the structure.
    unsafe { _mlx5dv_mkey_check(mkey, err_info, size_of::<mlx5dv_mkey_err>()) }
}

/// Queries a port. Returns 0 or an errno.
///
/// # Safety
/// `context` must be live and `info` writable.
#[inline]
pub unsafe fn mlx5dv_query_port(
    context: *mut ibv_context,
    port_num: u32,
    info: *mut mlx5dv_port,
) -> c_int {
    // SAFETY: the caller guarantees valid arguments, and the size is that of the structure.
    unsafe { _mlx5dv_query_port(context, port_num, info, size_of::<mlx5dv_port>()) }
}

/// Converts a timestamp of the device to nanoseconds of the system's clock.
#[inline]
pub const fn mlx5dv_ts_to_ns(clock: &mlx5dv_clock_info, device_timestamp: u64) -> u64 {
    let (mult, frac, shift) = (clock.mult as u64, clock.frac, clock.shift);
    let delta = device_timestamp.wrapping_sub(clock.last_cycles) & clock.mask;
    // A timestamp too far in the future is an earlier one.
    if delta > clock.mask / 2 {
        let delta = clock.last_cycles.wrapping_sub(device_timestamp) & clock.mask;
        let past = delta.wrapping_mul(mult).wrapping_sub(frac) >> shift;
        clock.nsec.wrapping_sub(past)
    } else {
        let future = delta.wrapping_mul(mult).wrapping_add(frac) >> shift;
        clock.nsec.wrapping_add(future)
    }
}
