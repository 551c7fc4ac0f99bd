//! Read-only memory that many requests send at once, and that peers may read if it was made so.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::alloc::Allocation;
use super::buf::Buf;
use super::options::MemoryOptions;
use super::region::Region;
use super::remote::RemoteMemory;
use crate::error::Result;
use crate::pd::ProtectionDomain;

/// A buffer that is read-only from now on. Clones share it.
///
/// To send from it, let a queue pair [`hold`](crate::QueuePair::hold) it once; each request then
/// names the [`Held`](crate::Held) token, which costs nothing to copy.
///
/// # Example
/// ```no_run
/// # use ibverbs::{Buf, Error, QueuePair, Rc, wr};
/// fn send_twice(qp: &mut QueuePair<Rc>, buf: Buf) -> Result<(), Error> {
///     let held = qp.hold(&buf.freeze())?;
///     qp.post_send(wr::send(held))?;
///     qp.post_send(wr::send(held.slice(0..16).expect("as long at least")))?;
///     Ok(())
/// }
/// ```
///
/// # References
/// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
#[derive(Clone)]
pub struct Frozen(Arc<Memory>);

enum Memory {
    /// What was a buffer.
    Buf(Buf),
    /// Registered for reads only, of peers too.
    Open(Region),
}

impl Buf {
    /// Makes the buffer read-only and shareable: it can then be sent by any number of requests at
    /// once.
    pub fn freeze(self) -> Frozen {
        Frozen(Arc::new(Memory::Buf(self)))
    }
}

impl ProtectionDomain {
    /// `len` bytes that `fill` writes once, and that peers may then read: the device may write to
    /// them for nobody.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let table = pd.frozen_shared(4096, Default::default(), |bytes| bytes.fill(7))?;
    /// assert_eq!(table[0], 7);
    /// let told_to_the_peer = table.remote().expect("open to peers");
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`pool_with`](Self::pool_with).
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
    pub fn frozen_shared(
        &self,
        len: usize,
        options: MemoryOptions,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Frozen> {
        let (flags, zero_based) = (options.flags(), options.zero_based);
        let memory = Allocation::new(len, options.backing)?;
        // SAFETY: initialised memory of this length with no other user yet; the reference ends
        // before it is registered.
        fill(unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr(), len) });
        let region =
            Region::register_memory(self, memory, AccessFlags::REMOTE_READ, flags, zero_based)?;
        Ok(Frozen(Arc::new(Memory::Open(region))))
    }
}

impl Frozen {
    /// Gives the buffer back if this is the last share of it: no clone, and no queue pair that
    /// holds it.
    ///
    /// # Errors
    /// Returns itself while it is shared; always when peers may read it.
    pub fn try_thaw(self) -> std::result::Result<Buf, Self> {
        match Arc::try_unwrap(self.0) {
            Ok(Memory::Buf(buf)) => Ok(buf),
            Ok(open @ Memory::Open(_)) => Err(Self(Arc::new(open))),
            Err(shared) => Err(Self(shared)),
        }
    }

    /// As a peer names it, if it was made by [`frozen_shared`](ProtectionDomain::frozen_shared).
    pub fn remote(&self) -> Option<RemoteMemory> {
        match &*self.0 {
            Memory::Buf(_) => None,
            Memory::Open(region) => Some(RemoteMemory {
                addr: region.base(),
                len: region.len() as u64,
                rkey: region.rkey(),
            }),
        }
    }

    pub(crate) fn pd(&self) -> &ProtectionDomain {
        match &*self.0 {
            Memory::Buf(buf) => buf.pd(),
            Memory::Open(region) => region.pd(),
        }
    }

    /// What a send posts, as far as a scatter entry reaches.
    pub(crate) fn shown(&self) -> ibv_sge {
        match &*self.0 {
            Memory::Buf(buf) => buf.shown(),
            Memory::Open(region) => {
                let length = u32::try_from(region.len()).unwrap_or(u32::MAX);
                ibv_sge {
                    addr: region.base(),
                    length,
                    lkey: region.lkey(),
                }
            }
        }
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Memory::Buf(buf) => buf,
            // SAFETY: initialised memory of this length, alive while self is. It is registered for
            // reads only, no request writes to it (a Frozen is no target), and there is
            // no other way to it.
            Memory::Open(region) => unsafe {
                std::slice::from_raw_parts(region.start().as_ptr(), region.len())
            },
        }
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("len", &self.len())
            .field("open", &self.remote().is_some())
            .finish()
    }
}
