//! Changing what a registered region is open to, without registering it anew.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr;

use rdma_sys::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW,
    IBV_REREG_MR_ERR_DO_FORK_OLD, ibv_rereg_mr,
};

use super::access::AccessFlags;
use super::region::Region;
use super::shared::SharedRegion;
use crate::errno::Errno;
use crate::error::Error;
use crate::kind::ErrorKind;

impl SharedRegion {
    /// Changes what peers may do with the whole region. Its keys may change, so this must be the
    /// last share of it: no clone or slice, no queue pair or memory window that holds it.
    ///
    /// # Errors
    /// Gives the region back, unchanged, unless the driver says that it can no longer be used; it
    /// is then deregistered. [`ErrorKind::Unsupported`] where the driver cannot do it.
    ///
    /// # References
    /// [`ibv_rereg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_rereg_mr.3.html)
    pub fn rereg(self, access: AccessFlags) -> Result<Self, ReregError> {
        let access = access | AccessFlags::LOCAL_WRITE;
        let (start, len) = (self.start, self.len);
        let mut region = match self.into_region() {
            Ok(region) => region,
            Err(shared) => {
                let what = "a shared region that a clone, a queue pair or a memory window holds";
                let error = Error::new(ErrorKind::Mismatch, "ibv_rereg_mr", what);
                return Err(ReregError {
                    region: Some(shared),
                    error,
                });
            }
        };
        let outcome = change(&mut region, access);
        let again = |region| {
            let mut region = Self::of(region);
            (region.start, region.len) = (start, len);
            region
        };
        match outcome {
            Ok(()) => Ok(again(region)),
            Err((Left::AsBefore, error)) => Err(ReregError {
                region: Some(again(region)),
                error,
            }),
            Err((Left::Unusable, error)) => Err(ReregError {
                region: None,
                error,
            }),
        }
    }
}

/// What a failure leaves of the region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    AsBefore,
    Unusable,
}

fn change(region: &mut Region, access: AccessFlags) -> Result<(), (Left, Error)> {
    let flags = region.raw_access(access).bits() as i32;
    let mr = region.registration().as_ptr();
    // SAFETY: the region is live; neither domain nor addresses change. Nobody uses its keys: this
    // is the last share of it.
    let returned = unsafe {
        ibv_rereg_mr(
            mr,
            IBV_REREG_MR_CHANGE_ACCESS as i32,
            ptr::null_mut(),
            ptr::null_mut(),
            0,
            flags,
        )
    };
    let errno = Errno::last();
    // A code of its own, with the reason in errno.
    let Some(left) = left_by(returned, errno) else {
        region.registration_mut().refresh();
        region.set_access(access);
        return Ok(());
    };
    let what = format!(
        "{} bytes on {} (code {returned})",
        region.len(),
        region.pd().context().device_name()
    );
    Err((left, Error::of_verb("ibv_rereg_mr", errno, what)))
}

/// How `enum ibv_rereg_mr_err_code` is read; `None` for a success.
fn left_by(returned: i32, errno: Errno) -> Option<Left> {
    match returned {
        // The new registration is valid; what failed concerns fork alone.
        0 | IBV_REREG_MR_ERR_DO_FORK_OLD => None,
        // "The region should not be used", unless the command never reached a driver that knows it.
        IBV_REREG_MR_ERR_CMD | IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW => match errno.0 {
            libc::EOPNOTSUPP | libc::ENOSYS => Some(Left::AsBefore),
            _ => Some(Left::Unusable),
        },
        _ => Some(Left::AsBefore),
    }
}

/// A region whose access could not be changed.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::AccessFlags;
/// let region = pd.shared(4096, AccessFlags::REMOTE_WRITE)?;
/// let read_only = match region.rereg(AccessFlags::REMOTE_READ) {
///     Ok(region) => region,
///     Err(failed) => {
///         println!("{}", failed.error()); // both software drivers have no such verb
///         failed.into_region().expect("as it was") // peers write to it still
///     }
/// };
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_rereg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_rereg_mr.3.html)
pub struct ReregError {
    region: Option<SharedRegion>,
    error: Error,
}

impl ReregError {
    /// Why.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// The region, as it was; `None` when the driver left it unusable.
    pub fn into_region(self) -> Option<SharedRegion> {
        self.region
    }
}

impl fmt::Debug for ReregError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for ReregError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.error, f)
    }
}

impl std::error::Error for ReregError {}

impl From<ReregError> for Error {
    fn from(failed: ReregError) -> Self {
        failed.error
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_odd_codes_say_what_is_left() {
        let unsupported = Errno(libc::EOPNOTSUPP);
        let invalid = Errno(libc::EINVAL);
        assert_eq!(left_by(0, invalid), None);
        assert_eq!(left_by(-3, invalid), None, "the new registration is valid");
        assert_eq!(left_by(-1, invalid), Some(Left::AsBefore));
        assert_eq!(left_by(-2, invalid), Some(Left::AsBefore));
        assert_eq!(left_by(-4, invalid), Some(Left::Unusable));
        assert_eq!(
            left_by(-4, unsupported),
            Some(Left::AsBefore),
            "no driver heard of it"
        );
        assert_eq!(left_by(-5, invalid), Some(Left::Unusable));
    }
}
