//! The return conventions of libibumad that [`rdma_types::convert`] does not cover.

use rdma_types::convert::clear_errno;
use rdma_types::{Errno, Result};

use crate::error::call_failed;

/// Converts "a number, or a negative errno".
pub(crate) fn not_negative(
    call: &'static str,
    detail: impl FnOnce() -> String,
    f: impl FnOnce() -> i32,
) -> Result<i32> {
    clear_errno();
    let returned = f();
    if returned >= 0 {
        Ok(returned)
    } else {
        Err(call_failed(call, cause(returned), detail()))
    }
}

/// Returns the cause of a negative return value.
///
/// libibumad returns -EIO or -1 for many failures and leaves the more precise cause in `errno`.
pub(crate) fn cause(returned: i32) -> Errno {
    match Errno::last() {
        Errno(0) => Errno::from_return(returned),
        last if returned == -libc::EIO || returned == -1 => last,
        _ => Errno::from_return(returned),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errno_is_the_cause_of_results_that_name_none() {
        // A call that sets `errno` to ENOENT, if it is made.
        let convert = |call: &str, returned| {
            let f = || {
                if !call.is_empty() {
                    std::fs::File::open(call).expect_err("no such file");
                }
                returned
            };
            not_negative("f", || "detail".to_owned(), f)
        };
        let failing = "/no/such/file";
        for (call, returned, expected) in [
            (failing, -libc::EIO, libc::ENOENT),
            (failing, -1, libc::ENOENT),
            (failing, -libc::EINVAL, libc::EINVAL),
            ("", -libc::EIO, libc::EIO),
            ("", -libc::EINVAL, libc::EINVAL),
        ] {
            // Of an earlier call.
            std::fs::read_dir("/proc/version").expect_err("not a directory");
            let error = convert(call, returned).expect_err("negative");
            assert_eq!(error.errno(), Some(Errno(expected)), "{call} {returned}");
            assert!(error.message().starts_with("f: detail: "), "{error}");
        }
        assert_eq!(convert("", 0).ok(), Some(0));
        assert_eq!(convert(failing, 5).ok(), Some(5));
    }
}
