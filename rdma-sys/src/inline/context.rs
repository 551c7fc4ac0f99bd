//! Queries of contexts, ports and GIDs.

use core::ffi::c_int;
use core::mem::offset_of;

use super::verbs_get_ctx_op;
use crate::{
    __VERBS_ABI_IS_EXTENDED, _ibv_query_gid_ex, _ibv_query_gid_table, ibv_context,
    ibv_device_attr_ex, ibv_gid_entry, ibv_port_attr, ibv_query_device, ibv_query_device_ex_input,
    ibv_values_ex, verbs_context,
};

/// Functions of the library that the headers replace by macros of the same name.
mod raw {
    use core::ffi::c_int;

    use crate::{_compat_ibv_port_attr, ibv_context};

    crate::library::functions! { Ibverbs;
        pub(super) fn ibv_query_port(
            context: *mut ibv_context,
            port_num: u8,
            port_attr: *mut _compat_ibv_port_attr,
        ) -> c_int;
    }
}

/// Returns the extended context that contains `context`, or NULL if the library that created it is
/// too old to have one.
///
/// # Safety
/// `context` must be a live context that libibverbs created, with provenance over the structure
/// that contains it.
#[inline]
pub unsafe fn verbs_get_ctx(context: *mut ibv_context) -> *mut verbs_context {
    // SAFETY: the caller guarantees that the context is live. This value of `abi_compat` marks the
    // context as the last field of a `verbs_context`.
    unsafe {
        if (*context).abi_compat != __VERBS_ABI_IS_EXTENDED {
            return core::ptr::null_mut();
        }
        context.byte_sub(offset_of!(verbs_context, context)).cast()
    }
}

/// Queries the attributes of a port. Like the macro of this name, it zeroes the fields of
/// `ibv_port_attr` that an older library does not fill.
///
/// # Safety
/// `context` must be live and `port_attr` writable.
#[inline]
pub unsafe fn ibv_query_port(
    context: *mut ibv_context,
    port_num: u8,
    port_attr: *mut ibv_port_attr,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid. The library's function writes a
    // prefix of `ibv_port_attr`.
    unsafe {
        if let Some(query_port) = verbs_get_ctx_op!(context, query_port) {
            query_port(context, port_num, port_attr, size_of::<ibv_port_attr>())
        } else {
            port_attr.write_bytes(0, 1);
            raw::ibv_query_port(context, port_num, port_attr.cast())
        }
    }
}

/// Queries one GID table entry with its type and network interface.
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
    // SAFETY: the caller guarantees that the arguments are valid. The size is that of `*entry`.
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

/// Queries all valid GID table entries of a device. Returns their number, or a negative errno.
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
    // SAFETY: the caller guarantees that the arguments are valid. The size is that of `*entries`.
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

/// Queries the attributes of a device. The extended attributes are zeroed if the provider or the
/// kernel only supports the classic ones.
///
/// # Safety
/// `context` must be live, `input` must be NULL or readable, and `attr` must be writable.
#[inline]
pub unsafe fn ibv_query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
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

/// Reads the clocks of the device that `values.comp_mask` selects.
///
/// # Safety
/// `context` must be live and `values` readable and writable.
#[inline]
pub unsafe fn ibv_query_rt_values_ex(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    // SAFETY: the caller guarantees that the arguments are valid.
    unsafe {
        match verbs_get_ctx_op!(context, query_rt_values) {
            Some(query_rt_values) => query_rt_values(context, values),
            None => libc::EOPNOTSUPP,
        }
    }
}
