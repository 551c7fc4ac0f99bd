//! Changing the access rights of a registered region.

#![allow(unsafe_code)]

use std::ptr;

use rdma_sys::{
    IBV_REREG_MR_CHANGE_ACCESS, IBV_REREG_MR_ERR_CMD, IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW,
    IBV_REREG_MR_ERR_DO_FORK_OLD, ibv_rereg_mr,
};

use super::access::AccessFlags;
use super::region::Region;
use super::shared::SharedRegion;
use crate::error::{Errno, Error, ErrorKind, call_failed, wraps_error};

impl SharedRegion {
    /// Changes the access rights of peers to the whole region.
    ///
    /// The keys can change, so this must be the last reference to the region: there is no clone or
    /// slice, and no queue pair or memory window holds it.
    ///
    /// # Errors
    /// Returns the unchanged region, unless the driver reports that it can no longer be used; it is
    /// then deregistered.
    ///
    /// - [`ErrorKind::Mismatch`]: there are other references to the region.
    /// - [`ErrorKind::Unsupported`]: the driver does not support changing access rights, or the
    ///   device may read memory after it was deregistered, so that this library has to choose the
    ///   memory by its access rights, as on Soft-iWARP.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn rereg(self, access: AccessFlags) -> Result<Self, ReregError> {
        let access = access | AccessFlags::LOCAL_WRITE;
        let (start, len) = (self.start, self.len);
        let mut region = match self.into_region() {
            Ok(region) => region,
            Err(shared) => {
                let what = "change the access of a shared region that a clone, a queue pair or a memory \
                            window holds";
                let error = Error::new(ErrorKind::Mismatch, "ibv_rereg_mr", what);
                return Err(ReregError {
                    region: Some(shared),
                    error,
                });
            }
        };
        let result = change_access(&mut region, access);
        let restore = |region| {
            let mut region = Self::from_region(region);
            (region.start, region.len) = (start, len);
            region
        };
        match result {
            Ok(()) => Ok(restore(region)),
            Err((AfterFailure::Unchanged, error)) => Err(ReregError {
                region: Some(restore(region)),
                error,
            }),
            Err((AfterFailure::Unusable, error)) => Err(ReregError {
                region: None,
                error,
            }),
        }
    }
}

/// The state of the region after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AfterFailure {
    Unchanged,
    Unusable,
}

fn change_access(region: &mut Region, access: AccessFlags) -> Result<(), (AfterFailure, Error)> {
    let context = region.pd().context();
    if !context.properties().finishes_read_responses {
        let what = format!(
            "{} bytes on {}, which may read them after they were deregistered",
            region.len(),
            context.device_name()
        );
        let error = Error::new(ErrorKind::Unsupported, "ibv_rereg_mr", what)
            .with_help("register a new region with these access rights");
        return Err((AfterFailure::Unchanged, error));
    }
    let flags = region.raw_access(access).bits() as i32;
    let mr = region.registration().as_ptr();
    // SAFETY: the region is live, and neither domain nor addresses change. This is its last
    // reference, so its keys are not in use.
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
    // The return value is a code of its own; the reason is in errno.
    let Some(state) = after_failure(returned, errno) else {
        region.registration_mut().refresh();
        region.set_access(access);
        return Ok(());
    };
    let what = format!(
        "{} bytes on {} (code {returned})",
        region.len(),
        region.pd().context().device_name()
    );
    Err((state, call_failed("ibv_rereg_mr", errno, what)))
}

/// Interprets `enum ibv_rereg_mr_err_code`; `None` for success.
fn after_failure(returned: i32, errno: Errno) -> Option<AfterFailure> {
    match returned {
        // The new registration is valid; the failure only concerns fork.
        0 | IBV_REREG_MR_ERR_DO_FORK_OLD => None,
        // The manual says that the region should not be used, unless the driver does not implement
        // the command.
        IBV_REREG_MR_ERR_CMD | IBV_REREG_MR_ERR_CMD_AND_DO_FORK_NEW => match errno.0 {
            libc::EOPNOTSUPP | libc::ENOSYS => Some(AfterFailure::Unchanged),
            _ => Some(AfterFailure::Unusable),
        },
        _ => Some(AfterFailure::Unchanged),
    }
}

/// A region whose access rights could not be changed.
///
/// # Example
/// ```no_run
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::AccessFlags;
/// let region = pd.shared(4096, AccessFlags::REMOTE_WRITE)?;
/// let read_only = match region.rereg(AccessFlags::REMOTE_READ) {
///     Ok(region) => region,
///     Err(failed) => {
///         println!("{}", failed.error()); // neither software driver supports it
///         failed.into_region().expect("unchanged") // peers can still write to it
///     }
/// };
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_rereg_mr")]
pub struct ReregError {
    region: Option<SharedRegion>,
    error: Error,
}

impl ReregError {
    /// Returns the unchanged region; `None` if the driver left it unusable.
    pub fn into_region(self) -> Option<SharedRegion> {
        self.region
    }
}

wraps_error!(ReregError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_determine_the_state_of_the_region() {
        let unsupported = Errno(libc::EOPNOTSUPP);
        let invalid = Errno(libc::EINVAL);
        assert_eq!(after_failure(0, invalid), None);
        assert_eq!(
            after_failure(-3, invalid),
            None,
            "the new registration is valid"
        );
        assert_eq!(after_failure(-1, invalid), Some(AfterFailure::Unchanged));
        assert_eq!(after_failure(-2, invalid), Some(AfterFailure::Unchanged));
        assert_eq!(after_failure(-4, invalid), Some(AfterFailure::Unusable));
        assert_eq!(
            after_failure(-4, unsupported),
            Some(AfterFailure::Unchanged),
            "the driver does not implement the command"
        );
        assert_eq!(after_failure(-5, invalid), Some(AfterFailure::Unusable));
    }
}
