//! Converters for the return values of C functions, one for each convention.
//!
//! Each returns an [`Errno`]; the caller adds the name of the call and the object with
//! [`Error::from_errno`](crate::Error::from_errno).

#![allow(unsafe_code)]

use std::ptr::NonNull;

use crate::errno::Errno;

/// Sets `errno` to 0, so that a value left by an earlier call is not taken for the cause of a
/// failure.
pub fn clear_errno() {
    // SAFETY: the location belongs to the calling thread and is always valid.
    unsafe {
        *libc::__errno_location() = 0;
    }
}

/// Converts "a pointer, or NULL and `errno`": most functions that create an object.
///
/// `call` makes the C call; `errno` is cleared before it.
///
/// # Errors
/// `call` returned NULL. The error is `Errno(0)` if the function did not set `errno`.
pub fn non_null<T>(call: impl FnOnce() -> *mut T) -> Result<NonNull<T>, Errno> {
    clear_errno();
    NonNull::new(call()).ok_or_else(Errno::last)
}

/// Converts "0, or an error number": most functions that modify or destroy an object. Both signs
/// are accepted.
///
/// # Errors
/// `returned` is not 0.
#[inline]
pub fn zero_or_errno(returned: i32) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        number => Err(Errno::from_return(number)),
    }
}

/// Converts "0, or −1 and `errno`": the functions of librdmacm.
///
/// # Errors
/// `returned` is not 0.
#[inline]
pub fn zero_or_last(returned: i32) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        _ => Err(Errno::last()),
    }
}

/// Converts "a number, or −1 and `errno`": system calls.
///
/// # Errors
/// `returned` is negative.
#[inline]
pub fn not_negative(returned: i32) -> Result<i32, Errno> {
    if returned < 0 {
        Err(Errno::last())
    } else {
        Ok(returned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail<T>(errno: i32, returned: T) -> T {
        // SAFETY: as in `clear_errno`.
        unsafe { *libc::__errno_location() = errno };
        returned
    }

    #[test]
    fn each_convention_finds_its_error_number() {
        let null = std::ptr::null_mut::<u8>();
        assert_eq!(
            non_null(|| fail(libc::ENOMEM, null)),
            Err(Errno(libc::ENOMEM))
        );
        assert_eq!(zero_or_last(fail(libc::EBUSY, -1)), Err(Errno(libc::EBUSY)));
        assert_eq!(not_negative(fail(libc::EBADF, -1)), Err(Errno(libc::EBADF)));
        for returned in [libc::EINVAL, -libc::EINVAL] {
            assert_eq!(zero_or_errno(returned), Err(Errno(libc::EINVAL)));
        }
    }

    #[test]
    fn null_does_not_report_an_earlier_error() {
        fail(libc::ENOENT, ());
        assert_eq!(non_null(std::ptr::null_mut::<u8>), Err(Errno(0)));
    }

    #[test]
    fn success_ignores_errno() {
        fail(libc::ENOENT, ());
        assert_eq!(zero_or_errno(0), Ok(()));
        assert_eq!(zero_or_last(0), Ok(()));
        assert_eq!(not_negative(7), Ok(7));
    }
}
