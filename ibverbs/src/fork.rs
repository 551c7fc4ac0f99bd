//! Support for `fork` in processes that use RDMA.
//!
//! Linux 5.12 and later copy registered pages when a process forks, and nothing needs to be done:
//! [`status`] returns [`ForkStatus::UNNEEDED`]. On older kernels, a fork can give the parent a new
//! copy of a page while the device writes to the old one. To prevent that, call [`init`] before
//! opening a device, which keeps registered pages out of the child (`MADV_DONTFORK`).
//!
//! In both cases the child must not use objects of the parent, and must not even drop them. It can
//! open the device again or call `exec`.
//!
//! To obey this rule is a condition of `fork`, which only `unsafe` code can call. The queues of
//! some devices are memory that both processes share, but each has its own copy of the tables of
//! requests in flight. If the child posted, the parent would take its completion for that of
//! another request. So posting, polling and arming fail with `EPERM` in the child. A post with the
//! extended verbs ([`is_extended`](crate::QueuePair::is_extended)) ends the child, because these
//! verbs cannot fail before they write to the queue. This is no protection for objects that the
//! child destroys: the kernel then destroys those of the parent. Nor does it help a child of the
//! system call `clone`.

#![allow(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use rdma_sys::{ibv_fork_init, ibv_is_fork_initialized};

use crate::convert::zero_or_errno;
use crate::error::{Error, ErrorKind, Result, load_libibverbs};
use rdma_types::c_value;

c_value! {
    /// Safety of `fork` for registered memory (`enum ibv_fork_status`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::fork::{self, ForkStatus};
    /// if fork::status() == ForkStatus::DISABLED {
    ///     fork::init()?; // before the first device is opened
    /// }
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_is_fork_initialized")]
    pub struct ForkStatus(u32) {
        /// Not safe: `IBV_FORK_DISABLED`.
        DISABLED = rdma_sys::IBV_FORK_DISABLED => "disabled",
        /// Safe, because [`init`] was called or `RDMAV_FORK_SAFE` is set in the environment:
        /// `IBV_FORK_ENABLED`.
        ENABLED = rdma_sys::IBV_FORK_ENABLED => "enabled",
        /// Safe, because the kernel copies registered pages when a process forks:
        /// `IBV_FORK_UNNEEDED`.
        UNNEEDED = rdma_sys::IBV_FORK_UNNEEDED => "unneeded",
    }
}

/// `true` after this process has opened a device. ibv_fork_init must not run while another thread
/// registers memory, and there is no memory to register before a device is opened.
static OPENED: Mutex<bool> = Mutex::new(false);

fn opened() -> MutexGuard<'static, bool> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a device is about to be opened.
pub(crate) fn record_open() {
    *opened() = true;
}

/// Returns whether forking is safe for registered memory.
///
/// # Example
/// ```no_run
/// use ibverbs::fork::{self, ForkStatus};
/// if fork::status() == ForkStatus::DISABLED {
///     fork::init()?;
/// }
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_is_fork_initialized")]
pub fn status() -> ForkStatus {
    let _opened = opened();
    // SAFETY: the call has no preconditions, except that no other thread calls ibv_fork_init, which
    // the lock prevents.
    ForkStatus(unsafe { ibv_is_fork_initialized() })
}

/// Returns `true` if forking is safe: fork support is enabled or not needed.
pub fn is_initialized() -> bool {
    status() != ForkStatus::DISABLED
}

/// Keeps registered memory out of child processes.
///
/// Call this before the first device is opened; calling it again has no effect. It costs one or two
/// system calls per registration. For memory registered in huge pages, `RDMAV_HUGEPAGES_SAFE` must
/// be set in the environment.
///
/// # Errors
/// - [`ErrorKind::InvalidInput`]: a device was opened before, and fork support was not enabled.
/// - [`ErrorKind::Unsupported`]: the kernel cannot keep memory out of child processes.
#[doc(alias = "ibv_fork_init")]
pub fn init() -> Result<()> {
    load_libibverbs("ibv_fork_init")?;
    let opened = opened();
    // SAFETY: as in `status`.
    let now = ForkStatus(unsafe { ibv_is_fork_initialized() });
    if *opened {
        return match now {
            ForkStatus::DISABLED => {
                Err(Error::new(ErrorKind::InvalidInput, "ibv_fork_init", "a device is already open")
                    .with_help("call fork::init() at the start of main, or set RDMAV_FORK_SAFE=1 in the environment"))
            }
            _ => Ok(()),
        };
    }
    // SAFETY: no device is open, and none can be opened while the lock is held, so no memory is
    // being registered.
    let returned = unsafe { ibv_fork_init() };
    zero_or_errno("ibv_fork_init", || "this process".into(), returned)
}
