//! Memory provided by the caller.

#![allow(unsafe_code)]

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use crate::unwind::contain;

/// Memory provided by the caller, for [`Backing::Caller`](crate::mr::Backing::Caller): for example
/// a file mapping, memory of a GPU driver or an arena.
///
/// # Example
/// This example uses memory that another library allocated, here a leaked vector:
/// ```no_run
/// # #![allow(unsafe_code)]
/// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
/// use ibverbs::{
///     AccessFlags, MemoryOptions,
///     mr::{Backing, CallerMemory},
/// };
/// use std::ptr::NonNull;
/// let arena = NonNull::from(Vec::leak(vec![0u8; 1 << 20])).cast::<u8>();
/// // SAFETY: no other code accesses the arena, and it is never freed.
/// let memory = unsafe { CallerMemory::new(arena, 1 << 20, ()) };
/// let options = MemoryOptions::new().backing(Backing::Caller(memory));
/// let region = pd.shared_with(1 << 20, AccessFlags::REMOTE_READ, options)?;
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_reg_mr")]
pub struct CallerMemory {
    start: NonNull<u8>,
    len: usize,
    /// Dropped when the device can no longer access the memory; leaked if that cannot be
    /// guaranteed.
    owner: Option<Box<dyn Any + Send + Sync>>,
}

// SAFETY: `new` requires that no other code uses the memory while this exists; the owner is Send.
unsafe impl Send for CallerMemory {}
// SAFETY: a shared CallerMemory only gives out a pointer; the owner is Sync.
unsafe impl Sync for CallerMemory {}

impl CallerMemory {
    /// Wraps `len` bytes at `start`.
    ///
    /// `owner` is dropped when the memory is no longer used. That can be long after the last handle
    /// was dropped, or never. It is never dropped if peers can read the memory and the device may
    /// still transmit it after it was deregistered, as Soft-iWARP does. If dropping it panics, the
    /// panic ends there, because the owner can be dropped while a queue is being destroyed.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// use ibverbs::{
    ///     MemoryOptions,
    ///     mr::{Backing, CallerMemory},
    /// };
    /// let arena: &'static mut [u8] = Vec::leak(vec![0; 1 << 20]);
    /// let start = std::ptr::NonNull::from(&mut *arena).cast();
    /// // SAFETY: the memory is never freed, and the only reference to it is not used again.
    /// let memory = unsafe { CallerMemory::new(start, 1 << 20, ()) };
    /// let pool = pd.pool_with(
    ///     16,
    ///     4096,
    ///     MemoryOptions::new().backing(Backing::Caller(memory)),
    /// )?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Safety
    /// Until `owner` is dropped, the memory must be mapped, initialized, readable and writable at
    /// this address, and no code may access it except through this value and the objects created
    /// from it.
    ///
    /// Other processes may access it, like peers, if it becomes a
    /// [`SharedRegion`](crate::SharedRegion) or a [`Sink`](crate::Sink).
    pub unsafe fn new(start: NonNull<u8>, len: usize, owner: impl Any + Send + Sync) -> Self {
        Self {
            start,
            len,
            owner: Some(Box::new(owner)),
        }
    }

    pub(crate) fn owner(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.owner.as_deref()
    }

    pub(crate) fn into_owner(mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.owner.take()
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for CallerMemory {
    fn drop(&mut self) {
        let owner = self.owner.take();
        contain(|| drop(owner));
    }
}

impl fmt::Debug for CallerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallerMemory")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
