//! XRC domains, which connect shared receive queues with XRC receive queue pairs.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rdma_sys::{
    IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_close_xrcd, ibv_open_xrcd, ibv_xrcd,
    ibv_xrcd_init_attr,
};

use crate::convert::non_null;
use crate::device::Context;
use crate::error::{ErrorKind, Result};
use crate::raw::{AsRaw, as_raw};

/// An XRC domain. Cloning is cheap.
///
/// An extended reliable connection (XRC) has two kinds of queue pair. The sender, a
/// [`QueuePair<XrcSend>`](crate::xrc::XrcSend), names a shared receive queue of the peer in each
/// request, so one connection to a host serves all its processes. The receiver, an
/// [`XrcRecvQueuePair`](crate::xrc::XrcRecvQueuePair), has no requests of its own. A message goes
/// to the named [`SharedReceiveQueue<Xrc>`](crate::xrc::Xrc) if that is in the same XRC domain, and
/// completes on its completion queue.
///
/// Processes that open the domain of the same file on the same device share it. That has a cost:
/// see [`Context::open_xrcd_by_file`].
///
/// # Example
/// ```no_run
/// use ibverbs::{CqOptions, Device, SrqOptions, wr};
///
/// let context = Device::by_name("mlx5_0")?.open()?;
/// let xrcd = context.open_xrcd()?;
/// let pd = context.alloc_pd()?;
/// let cq = context.create_cq(CqOptions::default())?;
/// let mut srq = pd.create_xrc_srq(&xrcd, &cq, SrqOptions::default())?;
/// srq.post_recv(wr::recv(pd.buf(4096)?))?;
/// let receiver = xrcd.create_xrc_recv_qp()?;
/// println!(
///     "connect to {}, and send to {}",
///     receiver.qp_num(),
///     srq.srq_num()?
/// );
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_open_xrcd(3)`](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html); IBA annex A14
#[doc(alias = "ibv_open_xrcd")]
#[derive(Clone)]
pub struct XrcDomain(Arc<OpenXrcDomain>);

struct OpenXrcDomain {
    raw: NonNull<ibv_xrcd>,
    context: Context,
    /// `true` if the domain was opened by a file. Receiving halves of other processes, and of
    /// other openings in this process, then belong to it, and `receivers` does not count them.
    is_shared: bool,
    receivers: Mutex<Receivers>,
}

/// The XRC receive queue pairs of this process in the domain, and resources of destroyed shared
/// receive queues that must outlive them.
#[derive(Default)]
struct Receivers {
    queue_pairs: usize,
    deferred: Vec<Box<dyn Any + Send>>,
}

// SAFETY: a domain is a handle, and the libibverbs functions on it are thread-safe. The deferred
// values are Send and protected by the mutex.
unsafe impl Send for OpenXrcDomain {}
// SAFETY: as for Send.
unsafe impl Sync for OpenXrcDomain {}

impl OpenXrcDomain {
    fn receivers(&self) -> MutexGuard<'_, Receivers> {
        self.receivers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for OpenXrcDomain {
    fn drop(&mut self) {
        // SAFETY: this is the last reference: every queue pair and shared receive queue holds an
        // Arc of it, so none exists.
        let returned = unsafe { ibv_close_xrcd(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

/// Modes of [`Context::open_xrcd_by_file`].
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::xrc::XrcdOpen;
/// use std::fs::File;
/// let file =
///     File::create("/run/store.xrcd").expect("a file that all processes of the store can open");
/// let xrcd = context.open_xrcd_by_file(&file, XrcdOpen::Create)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_open_xrcd")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XrcdOpen {
    /// Opens the domain of the file and creates it if there is none (`O_CREAT`).
    #[default]
    Create,
    /// Creates the domain of the file and fails if there is one (`O_CREAT | O_EXCL`).
    CreateNew,
    /// Opens the domain of the file and fails if there is none.
    Existing,
}

impl XrcdOpen {
    fn flags(self) -> i32 {
        match self {
            Self::Create => libc::O_CREAT,
            Self::CreateNew => libc::O_CREAT | libc::O_EXCL,
            Self::Existing => 0,
        }
    }
}

impl Context {
    /// Creates an XRC domain that is private to this process.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no XRC, as on
    /// both software devices.
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd(&self) -> Result<XrcDomain> {
        XrcDomain::open(self, None, libc::O_CREAT)
    }

    /// Opens the XRC domain of a file. Processes that use the same file share the domain.
    ///
    /// The file is identified by its inode; name and contents do not matter. It can be closed
    /// afterwards.
    ///
    /// A receiving half of any process can be in the middle of a message to a shared receive queue
    /// of the domain when that queue is destroyed, and no process can know this. Therefore the
    /// buffers that are posted to a queue when it is destroyed are never used again: they do not
    /// return to their pool, and their memory is freed when the pool is. To destroy a queue without
    /// losing the buffers of a pool, use a pool of its own for each queue. Completed receives
    /// return their buffers as always. The same is true if this process opens the file twice.
    ///
    /// # Errors
    /// Those of [`open_xrcd`](Self::open_xrcd), and the failures described at [`XrcdOpen`].
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Device, xrc::XrcdOpen};
    /// let context = Device::by_name("mlx5_0")?.open()?;
    /// let file = std::fs::File::open("/run/service.xrc").expect("an existing file");
    /// let xrcd = context.open_xrcd_by_file(&file, XrcdOpen::Create)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_open_xrcd")]
    pub fn open_xrcd_by_file(&self, file: &File, mode: XrcdOpen) -> Result<XrcDomain> {
        XrcDomain::open(self, Some(file), mode.flags())
    }
}

impl XrcDomain {
    fn open(context: &Context, file: Option<&File>, oflags: i32) -> Result<Self> {
        let mut attr = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: file.map_or(-1, File::as_raw_fd),
            oflags,
        };
        let what = || {
            let kind = file.map_or("anonymous", |_| "file-based");
            format!("{kind} XRC domain on {}", context.device_name())
        };
        let raw = non_null("ibv_open_xrcd", what, || {
            // SAFETY: the context is open, the descriptor is open or -1, and the attributes are
            // valid during the call.
            unsafe { ibv_open_xrcd(context.as_raw(), &raw mut attr) }
        })
        .map_err(|error| match error.kind() {
            ErrorKind::Unsupported => error
                .with_help("use a device with XRC, or RC queue pairs with a shared receive queue"),
            _ => error,
        })?;
        Ok(Self(Arc::new(OpenXrcDomain {
            raw,
            context: context.clone(),
            is_shared: file.is_some(),
            receivers: Mutex::default(),
        })))
    }

    /// Returns the open device to which the domain belongs.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Returns `true` if the domain was opened by a file, so that receiving halves may exist which
    /// this value does not count.
    pub(crate) fn is_shared(&self) -> bool {
        self.0.is_shared
    }

    /// Counts a receive queue pair of this process until the returned value is dropped, after the
    /// queue pair was destroyed.
    pub(crate) fn attach(&self) -> AttachedReceiver {
        self.0.receivers().queue_pairs += 1;
        AttachedReceiver(self.clone())
    }

    /// Keeps resources of a destroyed shared receive queue until a private domain has no XRC
    /// receive queue pair: such a queue pair may still be receiving a message into them.
    /// `resources` must not own the domain.
    pub(crate) fn defer_drop(&self, resources: impl Send + 'static) {
        debug_assert!(!self.is_shared());
        let mut receivers = self.0.receivers();
        if receivers.queue_pairs > 0 {
            receivers.deferred.push(Box::new(resources));
            return;
        }
        drop(receivers);
        drop(resources);
    }
}

/// Held by every XRC receive queue pair of the domain.
#[derive(Debug)]
pub(crate) struct AttachedReceiver(XrcDomain);

impl AttachedReceiver {
    pub(crate) fn domain(&self) -> &XrcDomain {
        &self.0
    }
}

impl Drop for AttachedReceiver {
    fn drop(&mut self) {
        let mut receivers = self.0.0.receivers();
        receivers.queue_pairs -= 1;
        let deferred = if receivers.queue_pairs == 0 {
            std::mem::take(&mut receivers.deferred)
        } else {
            Vec::new()
        };
        // Dropped after the lock is released, because dropping returns buffers to their pools.
        drop(receivers);
        drop(deferred);
    }
}

as_raw!(XrcDomain: ibv_xrcd, 0.raw);

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain")
            .field("device", &self.0.context.device_name())
            .finish_non_exhaustive()
    }
}
