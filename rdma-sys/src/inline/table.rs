//! Calls through the provider's function tables.

/// Calls a table entry that the provider has set. Like C, it does not check for NULL in release
/// builds.
///
/// The macro must be used in an unsafe block: the entry must not be NULL, and the arguments must be
/// valid for the function. `ci/provider_functions.md` lists which providers set an entry, and
/// `ci/tests/provider_functions` checks that no call of the other crates finds it NULL.
macro_rules! call {
    ($entry:expr, $($argument:expr),* $(,)?) => {{
        let entry = $entry;
        debug_assert!(entry.is_some(), concat!(stringify!($entry), ": not set by the provider"));
        (entry.unwrap_unchecked())($($argument),*)
    }};
}

/// Returns an entry of the extended table, or `None` if the library or the provider does not have
/// it. This is the macro `verbs_get_ctx_op` of the header.
///
/// The macro must be used in an unsafe block: the context must be a live `ibv_context` that
/// libibverbs created.
macro_rules! verbs_get_ctx_op {
    ($context:expr, $op:ident) => {{
        let vctx = $crate::verbs_get_ctx($context);
        // The structure grows at its front, so the offset of a field is measured from the end.
        let needed = size_of::<$crate::verbs_context>()
            - ::core::mem::offset_of!($crate::verbs_context, $op);
        if vctx.is_null() || (*vctx).sz < needed {
            None
        } else {
            (*vctx).$op
        }
    }};
}

/// Sets `errno` to EOPNOTSUPP and returns NULL, as the headers do if the provider lacks a function
/// that creates an object.
pub(super) fn unsupported<T>() -> *mut T {
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe { *libc::__errno_location() = libc::EOPNOTSUPP };
    core::ptr::null_mut()
}

pub(super) use {call, verbs_get_ctx_op};
