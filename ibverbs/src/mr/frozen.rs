//! Read-only memory that any number of requests can send, and that peers can read if registered so.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use rdma_sys::ibv_sge;

use super::access::AccessFlags;
use super::buf::Buf;
use super::options::MemoryOptions;
use super::region::Region;
use super::remote::RemoteMemory;
use crate::error::Result;
use crate::pd::ProtectionDomain;

/// A read-only buffer. Clones refer to the same memory.
///
/// It can be used where the standard library takes bytes: as `AsRef<[u8]>`, in comparisons with
/// slices and arrays, and in `for byte in &frozen`.
///
/// To send it, let a queue pair [`hold`](crate::QueuePair::hold) it once and post the
/// [`Held`](crate::Held) token, which is free to copy.
///
/// # Example
/// ```no_run
/// # use ibverbs::{Buf, Error, QueuePair, Rc, wr};
/// fn send_twice(qp: &mut QueuePair<Rc>, buf: Buf) -> Result<(), Error> {
///     let held = qp.hold(&buf.freeze())?;
///     qp.post_send(wr::send(held))?;
///     qp.post_send(wr::send(held.slice(0..16).expect("at least 16 bytes")))?;
///     Ok(())
/// }
/// ```
#[doc(alias = "ibv_reg_mr")]
#[derive(Clone)]
pub struct Frozen(Arc<Memory>);

enum Memory {
    /// A frozen buffer, registered for local access.
    Buf(Buf),
    /// A region that the device cannot write to. Peers can read it if it is registered so.
    Region(Region),
}

impl Buf {
    /// Makes the buffer read-only, so that any number of requests can send it concurrently.
    pub fn freeze(self) -> Frozen {
        Frozen(Arc::new(Memory::Buf(self)))
    }
}

impl ProtectionDomain {
    /// Registers `len` bytes that `fill` writes once and that peers can read afterwards. The device
    /// cannot write to them. Over iWARP, no other registered memory can be sent
    /// [unsignaled](crate::wr::SendRequest::signaled).
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let table = pd.frozen_shared(4096, Default::default(), |bytes| bytes.fill(7))?;
    /// assert_eq!(table[0], 7);
    /// let for_the_peer = table.remote().expect("peers can read it");
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`pool_with`](Self::pool_with).
    #[doc(alias = "ibv_reg_mr")]
    pub fn frozen_shared(
        &self,
        len: usize,
        options: MemoryOptions,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Frozen> {
        let access = AccessFlags::REMOTE_READ;
        let region = Region::register_with(self, len, access, options, |memory| {
            // SAFETY: the memory is initialized, has this length and no other user yet. The
            // reference ends before the memory is registered.
            fill(unsafe { std::slice::from_raw_parts_mut(memory.start().as_ptr(), len) });
            Ok(())
        })?;
        Ok(Frozen::from_region(region))
    }
}

impl Frozen {
    /// Returns the buffer if this is its last reference: there is no clone, and no queue pair holds
    /// it.
    ///
    /// # Errors
    /// Returns `self` if there are other references, and always if peers can read it or it was
    /// registered from a [value](ProtectionDomain::frozen_from).
    pub fn try_thaw(self) -> Result<Buf, Self> {
        match Arc::try_unwrap(self.0) {
            Ok(Memory::Buf(buf)) => Ok(buf),
            Ok(region @ Memory::Region(_)) => Err(Self(Arc::new(region))),
            Err(shared) => Err(Self(shared)),
        }
    }

    /// Returns the memory as a peer addresses it, if it was created by
    /// [`frozen_shared`](ProtectionDomain::frozen_shared) or
    /// [`frozen_shared_from`](ProtectionDomain::frozen_shared_from).
    pub fn remote(&self) -> Option<RemoteMemory> {
        match &*self.0 {
            Memory::Region(region) if region.access().contains(AccessFlags::REMOTE_READ) => {
                Some(RemoteMemory {
                    addr: region.base(),
                    len: region.len() as u64,
                    rkey: region.rkey(),
                })
            }
            Memory::Buf(_) | Memory::Region(_) => None,
        }
    }

    pub(crate) fn from_region(region: Region) -> Self {
        Self(Arc::new(Memory::Region(region)))
    }

    /// Returns the region, unless there are other references or it is a buffer.
    pub(crate) fn try_into_region(self) -> Result<Region, Self> {
        match Arc::try_unwrap(self.0) {
            Ok(Memory::Region(region)) => Ok(region),
            Ok(buf @ Memory::Buf(_)) => Err(Self(Arc::new(buf))),
            Err(shared) => Err(Self(shared)),
        }
    }

    /// Returns the protection domain in which the memory is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        match &*self.0 {
            Memory::Buf(buf) => buf.pd(),
            Memory::Region(region) => region.pd(),
        }
    }

    /// Returns the entry that a send posts, up to the maximum length of an entry.
    pub(crate) fn sge(&self) -> ibv_sge {
        match &*self.0 {
            Memory::Buf(buf) => buf.sge(),
            Memory::Region(region) => {
                let length = u32::try_from(region.len()).unwrap_or(u32::MAX);
                ibv_sge {
                    addr: region.base(),
                    length,
                    lkey: region.lkey(),
                }
            }
        }
    }

    /// Returns `true` if the device may read the memory after it was deregistered, so that it is
    /// never used for anything else.
    pub(crate) fn is_read_after_deregistration(&self) -> bool {
        match &*self.0 {
            Memory::Buf(_) => false,
            Memory::Region(region) => region.is_read_after_deregistration(),
        }
    }
}

impl Deref for Frozen {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &*self.0 {
            Memory::Buf(buf) => buf,
            // SAFETY: the memory is initialized, has this length and lives as long as self. It is
            // registered for reading only, requests cannot write to a Frozen, and there is no other
            // access to it.
            Memory::Region(region) => unsafe {
                std::slice::from_raw_parts(region.start().as_ptr(), region.len())
            },
        }
    }
}

impl fmt::Debug for Frozen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frozen")
            .field("len", &self.len())
            .field("remote", &self.remote().is_some())
            .finish()
    }
}
