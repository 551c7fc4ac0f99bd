//! XRC domains: what ties shared receive queues to the receiving halves of extended reliable
//! connections.

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
use crate::error::Result;
use crate::raw::AsRaw;

/// An XRC domain. Cloning it is cheap.
///
/// An extended reliable connection (XRC) has two halves of different kinds. Its sender, a
/// [`QueuePair<XrcSend>`](crate::xrc::XrcSend), names in each request one of many shared receive
/// queues of the other side, so that one connection to a host serves all processes there. Its
/// receiver, an [`XrcRecvQueuePair`](crate::xrc::XrcRecvQueuePair), has no requests of its own:
/// messages go to the [`SharedReceiveQueue<Xrc>`](crate::xrc::Xrc) named, if it is of the same XRC
/// domain, and complete on that queue's completion queue.
///
/// Processes that open the domain by the same file share it, on one device.
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
#[derive(Clone)]
pub struct XrcDomain(Arc<Inner>);

struct Inner {
    raw: NonNull<ibv_xrcd>,
    context: Context,
    receiving: Mutex<Receiving>,
}

/// The receiving halves of this process in the domain, and what destroyed shared receive queues
/// left for them to outlive.
#[derive(Default)]
struct Receiving {
    queue_pairs: usize,
    parked: Vec<Box<dyn Any + Send>>,
}

// SAFETY: a domain is a handle; libibverbs' functions on it are thread safe. What is parked is
// behind the lock, and Send.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Inner {
    fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receiving
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the last owner goes; queue pairs and shared receive queues held an Arc of this,
        // so none is left.
        let returned = unsafe { ibv_close_xrcd(self.raw.as_ptr()) };
        if returned != 0 {
            crate::leak::with(&self.context);
        }
    }
}

/// How [`Context::open_xrcd_by_file`] treats a domain that is there, or not.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
/// use ibverbs::xrc::XrcdOpen;
/// use std::fs::File;
/// let file =
///     File::create("/run/store.xrcd").expect("a file that all of the store's processes reach");
/// let xrcd = context.open_xrcd_by_file(&file, XrcdOpen::Create)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_open_xrcd(3)`](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XrcdOpen {
    /// Opens the file's domain, and makes it if it has none (`O_CREAT`).
    #[default]
    Create,
    /// Makes the file's domain, and fails if it has one (`O_CREAT | O_EXCL`).
    CreateNew,
    /// Opens the file's domain, and fails if it has none.
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
    /// Makes an XRC domain of this process alone.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the device has no XRC (both
    /// software devices).
    ///
    /// # References
    /// [`ibv_open_xrcd(3)`](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html)
    pub fn open_xrcd(&self) -> Result<XrcDomain> {
        XrcDomain::open(self, -1, libc::O_CREAT, "anonymous")
    }

    /// Opens the XRC domain that belongs to a file: processes that open it by the same file (the
    /// inode counts, not its name or contents) share it. The file need not stay open.
    ///
    /// # Errors
    /// As [`open_xrcd`](Self::open_xrcd); what `how` asks for can fail.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Device, xrc::XrcdOpen};
    /// let context = Device::by_name("mlx5_0")?.open()?;
    /// let file = std::fs::File::open("/run/service.xrc").expect("it exists");
    /// let xrcd = context.open_xrcd_by_file(&file, XrcdOpen::Create)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_open_xrcd(3)`](https://man7.org/linux/man-pages/man3/ibv_open_xrcd.3.html)
    pub fn open_xrcd_by_file(&self, file: &File, how: XrcdOpen) -> Result<XrcDomain> {
        XrcDomain::open(self, file.as_raw_fd(), how.flags(), "by a file")
    }
}

impl XrcDomain {
    fn open(context: &Context, fd: i32, oflags: i32, what: &str) -> Result<Self> {
        let comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
        let mut attr = ibv_xrcd_init_attr {
            comp_mask,
            fd,
            oflags,
        };
        let what = || format!("a domain {what} on {}", context.device_name());
        let raw = non_null("ibv_open_xrcd", what, || {
            // SAFETY: the context is open, the descriptor open or -1, and the attributes are valid
            // during the call.
            unsafe { ibv_open_xrcd(context.as_raw(), &raw mut attr) }
        })?;
        Ok(Self(Arc::new(Inner {
            raw,
            context: context.clone(),
            receiving: Mutex::default(),
        })))
    }

    /// The open device that the domain belongs to.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Counts a receiving half of this process until what is returned is dropped: after it was
    /// destroyed.
    pub(crate) fn attach(&self) -> AttachedReceiver {
        self.0.receiving().queue_pairs += 1;
        AttachedReceiver(self.clone())
    }

    /// Keeps what a destroyed shared receive queue owned until no receiving half of this process is
    /// left, which may have been in the middle of a message to it. It must not own the domain.
    pub(crate) fn park(&self, store: impl Send + 'static) {
        let mut receiving = self.0.receiving();
        if receiving.queue_pairs > 0 {
            receiving.parked.push(Box::new(store));
            return;
        }
        drop(receiving);
        drop(store);
    }
}

/// What every receiving half keeps while it exists.
#[derive(Debug)]
pub(crate) struct AttachedReceiver(XrcDomain);

impl AttachedReceiver {
    pub(crate) fn domain(&self) -> &XrcDomain {
        &self.0
    }
}

impl Drop for AttachedReceiver {
    fn drop(&mut self) {
        let mut receiving = self.0.0.receiving();
        receiving.queue_pairs -= 1;
        let parked = if receiving.queue_pairs == 0 {
            std::mem::take(&mut receiving.parked)
        } else {
            Vec::new()
        };
        // Dropped without the lock: buffers go back to their pools.
        drop(receiving);
        drop(parked);
    }
}

impl AsRaw for XrcDomain {
    type Raw = ibv_xrcd;

    fn as_raw(&self) -> *mut ibv_xrcd {
        self.0.raw.as_ptr()
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain")
            .field("device", &self.0.context.device_name())
            .finish_non_exhaustive()
    }
}
