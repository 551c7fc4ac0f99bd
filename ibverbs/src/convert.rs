//! Converts the return values of verbs to results. There is one function for each convention of
//! [`rdma_types::convert`]; it adds the name of the verb and the object that the verb was applied
//! to.

use std::ptr::NonNull;

use rdma_types::convert;

use crate::error::{Result, call_failed};

/// Converts "a pointer, or NULL and `errno`": most verbs that create an object.
pub(crate) fn non_null<T>(
    verb: &'static str,
    detail: impl FnOnce() -> String,
    call: impl FnOnce() -> *mut T,
) -> Result<NonNull<T>> {
    convert::non_null(call).map_err(|errno| call_failed(verb, errno, detail()))
}

/// Converts "0, or an error number" of either sign: most verbs that modify or destroy an object.
pub(crate) fn zero_or_errno(
    verb: &'static str,
    detail: impl FnOnce() -> String,
    returned: i32,
) -> Result<()> {
    convert::zero_or_errno(returned).map_err(|errno| call_failed(verb, errno, detail()))
}

/// Converts "a number, or −1 and `errno`": system calls, and verbs that only make one.
pub(crate) fn not_negative(
    verb: &'static str,
    detail: impl FnOnce() -> String,
    returned: i32,
) -> Result<i32> {
    convert::not_negative(returned).map_err(|errno| call_failed(verb, errno, detail()))
}
