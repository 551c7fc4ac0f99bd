//! Whether a process that uses RDMA may fork.
//!
//! Where the kernel copies registered pages at a fork (Linux 5.12 and later say so), nothing is
//! needed: [`status`] is [`ForkStatus::UNNEEDED`]. On an older kernel a fork could give the parent
//! a fresh copy of a page while the device writes to the old one, unless [`init`] was called before
//! anything was opened: registered pages are then kept out of the child (`MADV_DONTFORK`).
//!
//! In either case the child must not use objects of the parent: no queue, no region, not even their
//! dropping. It opens the device anew, or calls `exec`.

#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_fork_init, ibv_is_fork_initialized};

use crate::convert::zero_or_errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::newtype::c_value;

c_value! {
    /// Whether forking is safe for registered memory (`enum ibv_fork_status`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::fork::{self, ForkStatus};
    /// if fork::status() == ForkStatus::DISABLED {
    ///     fork::init()?; // before the first device is opened
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_is_fork_initialized(3)`](https://man7.org/linux/man-pages/man3/ibv_is_fork_initialized.3.html)
    pub struct ForkStatus(u32) {
        /// It is not: `IBV_FORK_DISABLED`.
        DISABLED = rdma_sys::IBV_FORK_DISABLED => "disabled",
        /// [`init`] was called, or the environment has RDMAV_FORK_SAFE: `IBV_FORK_ENABLED`.
        ENABLED = rdma_sys::IBV_FORK_ENABLED => "enabled",
        /// The kernel copies registered pages at a fork: `IBV_FORK_UNNEEDED`.
        UNNEEDED = rdma_sys::IBV_FORK_UNNEEDED => "unneeded",
    }
}

/// Whether this process has opened a device. The library's own switch is not made for being thrown
/// while another thread registers memory, and without a device there is none to register.
static OPENED: Mutex<bool> = Mutex::new(false);

fn opened() -> MutexGuard<'static, bool> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Says that a device is about to be opened.
pub(crate) fn opening() {
    *opened() = true;
}

/// Whether forking is safe for registered memory.
///
/// # Example
/// ```no_run
/// use ibverbs::fork::{self, ForkStatus};
/// if fork::status() == ForkStatus::DISABLED {
///     fork::init()?;
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_is_fork_initialized(3)`](https://man7.org/linux/man-pages/man3/ibv_is_fork_initialized.3.html)
pub fn status() -> ForkStatus {
    let _opened = opened();
    // SAFETY: asks the library, which asks the kernel; the switch is not thrown meanwhile.
    ForkStatus(unsafe { ibv_is_fork_initialized() })
}

/// Whether nothing more is to be done before a fork: the support is on, or not needed.
pub fn is_initialized() -> bool {
    status() != ForkStatus::DISABLED
}

/// Keeps registered memory out of children. To be called before the first device is opened; again
/// is harmless.
///
/// It costs a system call or two for each registration, and memory registered in huge pages needs
/// `RDMAV_HUGEPAGES_SAFE` in the environment.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] after a device was opened, unless fork support was on already;
/// [`ErrorKind::Unsupported`] where the kernel cannot keep memory from children.
///
/// # References
/// [`ibv_fork_init(3)`](https://man7.org/linux/man-pages/man3/ibv_fork_init.3.html)
pub fn init() -> Result<()> {
    let opened = opened();
    // SAFETY: as in `status`.
    let now = ForkStatus(unsafe { ibv_is_fork_initialized() });
    if *opened {
        return match now {
            ForkStatus::DISABLED => {
                Err(Error::new(ErrorKind::InvalidInput, "ibv_fork_init", "a device was opened already")
                    .with_hint("call fork::init() first thing in main, or set RDMAV_FORK_SAFE=1 in the environment"))
            }
            _ => Ok(()),
        };
    }
    // SAFETY: no device is open and none is opened while the lock is held, so no memory is being
    // registered.
    let returned = unsafe { ibv_fork_init() };
    zero_or_errno("ibv_fork_init", || "this process".into(), returned)
}
