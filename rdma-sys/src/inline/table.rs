//! Calling through the function tables that a provider fills.

/// Calls a table entry that the provider is bound to have filled, at C's cost: no test in release
/// builds.
///
/// To be used in an unsafe block: the entry must not be NULL, and the arguments must be what the
/// entry expects.
macro_rules! call {
    ($entry:expr, $($argument:expr),* $(,)?) => {{
        let entry = $entry;
        debug_assert!(entry.is_some(), concat!(stringify!($entry), ": the provider has no such function"));
        (entry.unwrap_unchecked())($($argument),*)
    }};
}

/// The header's `verbs_get_ctx_op`: the entry of the extended table, `None` if the library or the
/// provider lacks it.
///
/// To be used in an unsafe block: the context must be a live `ibv_context` made by libibverbs.
macro_rules! verbs_get_ctx_op {
    ($context:expr, $op:ident) => {{
        let vctx = $crate::verbs_get_ctx($context);
        // The structure grows at its front, so what an older library has is measured from the end.
        let needed = size_of::<$crate::verbs_context>()
            - ::core::mem::offset_of!($crate::verbs_context, $op);
        if vctx.is_null() || (*vctx).sz < needed {
            None
        } else {
            (*vctx).$op
        }
    }};
}

/// Sets `errno` to EOPNOTSUPP and returns NULL, the headers' answer to an absent function that
/// makes an object.
pub(super) fn unsupported<T>() -> *mut T {
    // SAFETY: the thread's own errno is always valid.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    core::ptr::null_mut()
}

pub(super) use {call, verbs_get_ctx_op};
