//! Registration of memory that values of the caller own: vectors, boxes, reference-counted bytes,
//! file mappings.

#![allow(unsafe_code)]

use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::access::AccessFlags;
use super::buf::Buf;
use super::caller::CallerMemory;
use super::frozen::Frozen;
use super::options::{Backing, MemoryOptions};
use super::pool::Pool;
use super::region::Region;
use super::shared::SharedRegion;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;

impl ProtectionDomain {
    /// Registers the bytes of a value for sending, without a copy: of a `Vec<u8>`, a `Box<[u8]>`,
    /// an `Arc<[u8]>`, a `String`, a `bytes::Bytes`, a mapped file, or a message of another
    /// connection.
    ///
    /// The value is dropped after the last [`Frozen`] and the queue pairs that hold it, and not
    /// before the device has finished with the memory. [`Frozen::try_into_owner`] returns it. The
    /// memory can be read-only, because the device may only read.
    ///
    /// Registering costs a system call, and pins whole pages. To send many values, copy small ones
    /// into buffers of a [`Pool`].
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool), also if there are no bytes. The value is then dropped.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QueuePair, Rc, wr};
    /// # fn f(qp: &mut QueuePair<Rc>, answer: Vec<u8>) -> ibverbs::Result<()> {
    /// let answer = qp.pd().frozen_from(answer)?; // not copied
    /// let held = qp.hold(&answer)?;
    /// qp.post_send(wr::send(held))?;
    /// qp.release(held)?; // after the completion, the next release frees it
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn frozen_from<T: AsRef<[u8]> + Send + 'static>(&self, owner: T) -> Result<Frozen> {
        self.freeze_owner(owner, AccessFlags::empty())
    }

    /// Like [`frozen_from`](Self::frozen_from), and peers can read the memory
    /// ([`Frozen::remote`]).
    ///
    /// On devices that may transmit the memory after it was deregistered, such as Soft-iWARP, the
    /// value is never dropped.
    ///
    /// # Errors
    /// Those of [`frozen_from`](Self::frozen_from).
    #[doc(alias = "ibv_reg_mr")]
    pub fn frozen_shared_from<T: AsRef<[u8]> + Send + 'static>(&self, owner: T) -> Result<Frozen> {
        self.freeze_owner(owner, AccessFlags::REMOTE_READ)
    }

    /// Registers the bytes of a value as memory that peers can access, without a copy: of a
    /// `Vec<u8>`, a `Box<[u8]>`, a writable mapping of a file.
    ///
    /// The value is dropped after the last [`SharedRegion`] and the queue pairs that hold it, and
    /// not before the device has finished with the memory. Its memory then has what peers and
    /// requests have written.
    ///
    /// On devices that may transmit the memory after it was deregistered, such as Soft-iWARP, the
    /// value is never dropped if peers can read it.
    ///
    /// # Errors
    /// Those of [`shared`](Self::shared), also if there are no bytes, and
    /// [`ErrorKind::InvalidInput`] if their address or number is not a multiple of 8. The value is
    /// then dropped. `malloc` aligns vectors of 8 bytes or more, but not every allocator does.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::AccessFlags;
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let table = pd.shared_from(vec![0; 1 << 20], AccessFlags::REMOTE_WRITE)?;
    /// println!("peers can write {:?}", table.remote());
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn shared_from<T: AsMut<[u8]> + Send + 'static>(
        &self,
        owner: T,
        access: AccessFlags,
    ) -> Result<SharedRegion> {
        let (start, len, owner) = Owned::new_mut(owner);
        // SAFETY: the owner keeps the memory valid until it is dropped, and its bytes are borrowed
        // mutably until then. So there is no other access to them.
        let memory = unsafe { CallerMemory::new(start, len, owner) };
        let options = MemoryOptions::new().backing(Backing::Caller(memory));
        self.shared_with(len, access, options)
    }

    fn freeze_owner<T: AsRef<[u8]> + Send + 'static>(
        &self,
        owner: T,
        access: AccessFlags,
    ) -> Result<Frozen> {
        let (start, len, owner) = Owned::new(owner);
        // SAFETY: the owner keeps the memory valid and unchanged until it is dropped. It is only
        // read: a `Frozen` has no access that writes, and neither has the registration.
        let memory = unsafe { CallerMemory::new(start, len, owner) };
        let options = MemoryOptions::new().backing(Backing::Caller(memory));
        Region::register(self, len, access, options).map(Frozen::from_region)
    }

    /// Registers the bytes of a vector as a buffer, without a copy. Requests receive into it, read
    /// into it and send it. [`Buf::try_into_vec`] returns the vector.
    ///
    /// The size of the buffer is the length of the vector, not its capacity.
    ///
    /// # Errors
    /// Those of [`pool`](Self::pool), also if the vector is empty. It is then dropped.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{Buf, QueuePair, Rc, Retired, wr};
    /// fn receive(qp: &mut QueuePair<Rc>, body: Vec<u8>) -> ibverbs::Result<()> {
    ///     let buf: Buf = qp.pd().buf_from(body)?;
    ///     Ok(qp.post_recv(wr::recv(buf))?)
    /// }
    /// fn received(retired: Retired) -> Option<Vec<u8>> {
    ///     retired.into_buf()?.try_into_vec().ok() // the received bytes, not copied
    /// }
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub fn buf_from(&self, bytes: Vec<u8>) -> Result<Buf> {
        let len = bytes.len();
        if u32::try_from(len).is_err() {
            let what = format!("a vector of {len} bytes");
            return Err(Error::new(ErrorKind::InvalidInput, "buf_from", what)
                .with_help("use at most 2^32-1 bytes, the maximum length of a scatter entry"));
        }
        let owner = RawVec::new(bytes);
        // SAFETY: the owner is the only other access to the memory, and accesses it only after the
        // `CallerMemory` was dropped.
        let memory = unsafe { CallerMemory::new(owner.start, len, owner) };
        let options = MemoryOptions::new().backing(Backing::Caller(memory));
        let region = Region::register(self, len, AccessFlags::LOCAL_WRITE, options)?;
        Ok(Pool::whole_region(region))
    }
}

impl Frozen {
    /// Returns the value from which the memory was registered, after deregistering it.
    ///
    /// # Errors
    /// Returns `self` if there are other references or queue pairs that hold it, if it was
    /// registered from a value of another type or from none, if the device cannot deregister it,
    /// or if it may still transmit the memory.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// let frozen = pd.frozen_from(String::from("a message"))?;
    /// let text: String = frozen.try_into_owner().expect("the last reference");
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_dereg_mr")]
    pub fn try_into_owner<T: 'static>(self) -> Result<T, Self> {
        let region = self.try_into_region()?;
        match region.into_caller_owner::<Owned<T>>() {
            Ok(owner) => Ok(owner.into_inner()),
            Err(region) => Err(Self::from_region(region)),
        }
    }
}

impl Buf {
    /// Returns the vector from which the buffer was registered
    /// ([`buf_from`](ProtectionDomain::buf_from)), with the length of the buffer, after
    /// deregistering it.
    ///
    /// # Errors
    /// Returns `self` if the buffer was not registered from a vector, or if the device cannot
    /// deregister it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn try_into_vec(self) -> Result<Vec<u8>, Self> {
        let len = self.len();
        let region = self.try_into_region()?;
        match region.into_caller_owner::<RawVec>() {
            Ok(owner) => {
                let mut bytes = owner.into_vec();
                bytes.truncate(len);
                Ok(bytes)
            }
            Err(region) => {
                let mut buf = Pool::whole_region(region);
                buf.set_len(len);
                Err(buf)
            }
        }
    }
}

/// A value on the heap whose bytes are borrowed until it is dropped. A raw pointer and not a `Box`,
/// because moving a box would end the borrow.
struct Owned<T>(NonNull<T>);

// SAFETY: the value is Send, and this is its only owner.
unsafe impl<T: Send> Send for Owned<T> {}
// SAFETY: a shared Owned gives no access to the value.
unsafe impl<T: Send> Sync for Owned<T> {}

impl<T: AsRef<[u8]>> Owned<T> {
    /// Returns the address and the number of its bytes, and the value.
    ///
    /// They are valid and do not change until the value is dropped: it is borrowed until then, and
    /// safe code cannot change bytes to which a `&[u8]` exists.
    fn new(value: T) -> (NonNull<u8>, usize, Self) {
        let value = Self(NonNull::from(Box::leak(Box::new(value))));
        // SAFETY: the value is alive, and nothing else refers to it. `drop` ends the borrow.
        let bytes = unsafe { value.0.as_ref() }.as_ref();
        (NonNull::from(bytes).cast(), bytes.len(), value)
    }
}

impl<T: AsMut<[u8]>> Owned<T> {
    /// Like [`new`](Self::new), with a mutable borrow.
    fn new_mut(value: T) -> (NonNull<u8>, usize, Self) {
        let mut value = Self(NonNull::from(Box::leak(Box::new(value))));
        // SAFETY: as in `new`.
        let bytes = unsafe { value.0.as_mut() }.as_mut();
        (NonNull::from(&mut *bytes).cast(), bytes.len(), value)
    }
}

impl<T> Owned<T> {
    fn into_inner(self) -> T {
        let this = ManuallyDrop::new(self);
        // SAFETY: the pointer comes from a box, and is not used again. The borrow has ended,
        // because the memory was deregistered and its `CallerMemory` is gone.
        *unsafe { Box::from_raw(this.0.as_ptr()) }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        // SAFETY: as in `into_inner`.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// The parts of a vector, without a reference to its memory.
struct RawVec {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
}

// SAFETY: the only owner of plain memory.
unsafe impl Send for RawVec {}
// SAFETY: a shared RawVec gives no access to the memory.
unsafe impl Sync for RawVec {}

impl RawVec {
    fn new(bytes: Vec<u8>) -> Self {
        let mut bytes = ManuallyDrop::new(bytes);
        Self {
            // Not from a slice, which would refer only to the bytes in use: all of the capacity is
            // freed with this pointer.
            start: NonNull::new(bytes.as_mut_ptr()).expect("not null"),
            len: bytes.len(),
            capacity: bytes.capacity(),
        }
    }

    fn into_vec(self) -> Vec<u8> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the parts of a vector, used once. Its first `len` bytes are still initialized.
        unsafe { Vec::from_raw_parts(this.start.as_ptr(), this.len, this.capacity) }
    }
}

impl Drop for RawVec {
    fn drop(&mut self) {
        // SAFETY: as in `into_vec`.
        drop(unsafe { Vec::from_raw_parts(self.start.as_ptr(), self.len, self.capacity) });
    }
}
