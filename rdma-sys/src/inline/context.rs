//! Context, port and GID queries.

use core::ffi::c_int;
use core::mem::offset_of;

use super::verbs_get_ctx_op;
use crate::{
    __VERBS_ABI_IS_EXTENDED, _ibv_query_gid_ex, _ibv_query_gid_table, ibv_context,
    ibv_device_attr_ex, ibv_gid_entry, ibv_port_attr, ibv_query_device, ibv_query_device_ex_input,
    ibv_values_ex, verbs_context,
};

/// Functions whose names the headers' macros take over.
mod raw {
    use core::ffi::c_int;

    use crate::{_compat_ibv_port_attr, ibv_context};

    unsafe extern "C" {
        pub(super) fn ibv_query_port(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut _compat_ibv_port_attr,
        ) -> c_int;
    }
}

/// The extended context around `context`, or NULL if the library that made it is too old to have
/// one.
///
/// # Safety
/// `context` must be a live context made by libibverbs, with provenance over the structure around
/// it.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the context is live; `abi_compat` says that it is the last field of a
    // `verbs_context`.
    unsafe {
        if (*context).abi_compat != __VERBS_ABI_IS_EXTENDED {
            return core::ptr::null_mut();
        }
        context.byte_sub(offset_of!(verbs_context, context)).cast()
    }
}

/// Port attributes (the macro of this name: all of `ibv_port_attr`, what the library lacks zeroed).
///
/// # Safety
/// `context` must be live and `port_attr` writable.
#[inline]
pub unsafe fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller's promise; the old function writes a prefix of `ibv_port_attr`.
    unsafe {
        if let Some(query_port) = verbs_get_ctx_op!(context, query_port) {
            query_port(context, port_num, port_attr, size_of::<ibv_port_attr>())
        } else {
            port_attr.write_bytes(0, 1);
            raw::ibv_query_port(context, port_num, port_attr.cast())
        }
    }
}

/// One GID table entry with its type and network interface.
///
/// # Safety
/// `context` must be live and `entry` writable.
#[inline]
pub unsafe fn ibv_query_gid_ex(
    context: *mut ibv_context,
    port_num: u32,
    gid_index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
) -> c_int {
    // SAFETY: the caller's promise; the size is that of what `entry` points at.
    unsafe {
        _ibv_query_gid_ex(
            context,
            port_num,
            gid_index,
            entry,
            flags,
            size_of::<ibv_gid_entry>(),
        )
    }
}

/// All valid GID table entries of a device; their number, or a negative errno.
///
/// # Safety
/// `context` must be live and `entries` writable for `max_entries`.
#[inline]
pub unsafe fn ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max_entries: usize,
    flags: u32,
) -> isize {
    // SAFETY: the caller's promise; the size is that of what `entries` points at.
    unsafe {
        _ibv_query_gid_table(
            context,
            entries,
            max_entries,
            flags,
            size_of::<ibv_gid_entry>(),
        )
    }
}

/// Device attributes, the extended ones zeroed where provider or kernel have only the classic ones.
///
/// # Safety
/// `context` must be live, `input` NULL or readable, `attr` writable.
#[inline]
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        if !input.is_null() && (*input).comp_mask != 0 {
            return libc::EINVAL;
        }
        if let Some(query_device_ex) = verbs_get_ctx_op!(context, query_device_ex) {
            let ret = query_device_ex(context, input, attr, size_of::<ibv_device_attr_ex>());
            if ret != libc::EOPNOTSUPP && ret != libc::ENOSYS {
                return ret;
            }
        }
        attr.write_bytes(0, 1);
        ibv_query_device(context, &raw mut (*attr).orig_attr)
    }
}

/// The device's clock, as asked for in `values.comp_mask`.
///
/// # Safety
/// `context` must be live and `values` readable and writable.
#[inline]
pub unsafe fn ibv_query_rt_values_ex(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match verbs_get_ctx_op!(context, query_rt_values) {
            Some(query_rt_values) => query_rt_values(context, values),
            None => libc::EOPNOTSUPP,
        }
    }
}
