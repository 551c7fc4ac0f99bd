//! Memory registered with every device of an engine, and its remote keys.

use std::any::Any;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use ibverbs::{
    AccessFlags, DeviceRegion, Error, ErrorKind, Frozen, Held, MemoryOptions, ProtectionDomain,
    QueuePair, Rc, RemoteMemory, Result, SharedRegion,
};

use crate::failure::lock;
use crate::memory::lent::{Lent, Returned, SharedOwner};
use crate::protocol::remote_region::RemoteRegion;
use crate::waker::Waker;

/// Access of peers to writable regions.
pub(crate) const ACCESS: AccessFlags = AccessFlags::REMOTE_WRITE.union(AccessFlags::REMOTE_READ);

/// Distance between the parts of a region that a queue pair holds, and maximum length of a request.
/// A token can name both together.
pub(crate) const PART: usize = 1 << 31;

/// The key of a device that is not open.
const NO_KEY: RemoteMemory = RemoteMemory {
    addr: 0,
    len: 0,
    rkey: 0,
};

/// Memory that is the source or the target of transfers, on this side or at a peer. Clones refer to
/// the same memory.
///
/// Peers that have its [remote region](Self::remote) can access it at any time, so there are no
/// references to its bytes: they are copied in and out. The memory is deregistered and freed when
/// the last clone was dropped and no transfer of this side uses it anymore.
///
/// # Example
/// ```no_run
/// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
/// let region = engine.alloc(4096)?;
/// region.write(0, b"hello")?;
/// let mut bytes = [0; 5];
/// region.read(0, &mut bytes)?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Region(pub(crate) Arc<RegionMemory>);

/// Registers the memory in a protection domain.
type Register = Box<dyn FnMut(&ProtectionDomain) -> Result<Memory> + Send>;

pub(crate) struct RegionMemory {
    pub(crate) id: u64,
    /// Identity of the engine.
    pub(crate) engine: u64,
    len: usize,
    is_writable: bool,
    register: Mutex<Register>,
    /// The same memory, registered with each device that was open.
    registered: Mutex<Vec<Option<Registered>>>,
    returned: Returned,
    /// The last field: the queue pairs release the memory when the others are dropped.
    uses: Notify,
}

/// Memory as registered with an open device, by the generation of the device.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) generation: u64,
    pub(crate) memory: Memory,
}

/// Memory as registered with one device.
#[derive(Clone, Debug)]
pub(crate) enum Memory {
    Shared(SharedRegion),
    Frozen(Frozen),
    Device(DeviceRegion),
}

/// The token of memory that a queue pair holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Token {
    Shared(Held<SharedRegion>),
    Frozen(Held<Frozen>),
    Device(Held<DeviceRegion>),
}

/// Number of users of the memory: the region, and each queue pair that holds it.
#[derive(Debug)]
pub(crate) struct Uses {
    count: Mutex<usize>,
    none: Condvar,
}

impl Uses {
    pub(crate) fn add(&self) {
        *lock(&self.count) += 1;
    }

    pub(crate) fn remove(&self) {
        let mut count = lock(&self.count);
        *count -= 1;
        if *count == 0 {
            self.none.notify_all();
        }
    }
}

/// Counts the regions that were dropped, so that queue pairs look for what they can release.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    /// The numbers of those that were not dropped.
    pub(crate) registered: Mutex<HashSet<u64>>,
    pub(crate) count: AtomicU64,
    pub(crate) wakers: Vec<Waker>,
}

/// The use of the memory by its region.
struct Notify {
    id: u64,
    uses: Arc<Uses>,
    releases: Arc<Releases>,
}

impl Drop for Notify {
    fn drop(&mut self) {
        self.uses.remove();
        lock(&self.releases.registered).remove(&self.id);
        self.releases.count.fetch_add(1, Ordering::AcqRel);
        self.releases.wakers.iter().for_each(Waker::wake);
    }
}

impl Memory {
    /// Holds a [part](RegionMemory::part) of the memory.
    pub(crate) fn hold(&self, part: usize, qp: &mut QueuePair<Rc>) -> Result<Token> {
        Ok(match self {
            Self::Shared(region) => {
                let start = part * PART;
                let end = region.len().min(start + u32::MAX as usize);
                let part = region.slice(start..end).ok_or_else(out_of_bounds)?;
                Token::Shared(qp.hold(&part)?)
            }
            Self::Frozen(frozen) => Token::Frozen(qp.hold(frozen)?),
            Self::Device(region) => Token::Device(qp.hold(region)?),
        })
    }

    fn remote(&self) -> RemoteMemory {
        match self {
            Self::Shared(region) => region.remote(),
            Self::Frozen(frozen) => frozen.remote().unwrap_or(NO_KEY),
            Self::Device(region) => region.remote().unwrap_or(NO_KEY),
        }
    }
}

impl Token {
    pub(crate) fn slice(self, range: Range<usize>) -> Option<Self> {
        Some(match self {
            Self::Shared(token) => Self::Shared(token.slice(range)?),
            Self::Frozen(token) => Self::Frozen(token.slice(range)?),
            Self::Device(token) => Self::Device(token.slice(range)?),
        })
    }

    /// Returns `true` if the queue pair does not keep the memory alive anymore.
    pub(crate) fn release(self, qp: &mut QueuePair<Rc>) -> Result<bool> {
        match self {
            Self::Shared(token) => qp.release(token),
            Self::Frozen(token) => qp.release(token),
            Self::Device(token) => qp.release(token),
        }
    }
}

/// The protection domain of an open device, and the generation of the device.
pub(crate) struct Domain {
    pub(crate) generation: u64,
    pub(crate) pd: ProtectionDomain,
}

impl Region {
    /// Allocates memory and registers it with each device that is open. At least one must be.
    pub(crate) fn alloc(
        engine: &Owner,
        domains: &[Option<Domain>],
        len: usize,
        options: MemoryOptions,
    ) -> Result<Self> {
        let origin = first(domains, "alloc")?.shared_with(len, ACCESS, options)?;
        Self::from_shared(engine, domains, origin, Returned::default())
    }

    /// Registers the bytes of a value as memory that can be written.
    pub(crate) fn from_owner_mut<T>(
        engine: &Owner,
        domains: &[Option<Domain>],
        value: T,
    ) -> Result<Self>
    where
        T: AsMut<[u8]> + Send + 'static,
    {
        let returned = Returned::default();
        let lent = Lent {
            value: Some(value),
            returned: Arc::clone(&returned),
        };
        let origin = first(domains, "register_mut")?.shared_from(lent, ACCESS)?;
        Self::from_shared(engine, domains, origin, returned)
    }

    /// Registers memory that the first open device has registered with the other ones.
    fn from_shared(
        engine: &Owner,
        domains: &[Option<Domain>],
        origin: SharedRegion,
        returned: Returned,
    ) -> Result<Self> {
        let (len, mut first) = (origin.len(), Some(Memory::Shared(origin.clone())));
        Self::new(engine, domains, len, returned, move |pd| {
            match first.take() {
                Some(memory) => Ok(memory),
                None => origin.register_in(pd, ACCESS).map(Memory::Shared),
            }
        })
    }

    pub(crate) fn from_owner<T>(
        engine: &Owner,
        domains: &[Option<Domain>],
        value: T,
    ) -> Result<Self>
    where
        T: AsRef<[u8]> + Send + Sync + 'static,
    {
        let returned = Returned::default();
        let lent = Arc::new(Lent {
            value: Some(value),
            returned: Arc::clone(&returned),
        });
        let position = |bytes: &[u8]| (bytes.as_ptr().addr(), bytes.len());
        let first = position((*lent).as_ref());
        Self::new(engine, domains, limited(first.1)?, returned, move |pd| {
            let frozen = pd.frozen_shared_from(SharedOwner(Arc::clone(&lent)))?;
            if position(&frozen) == first {
                return Ok(Memory::Frozen(frozen));
            }
            let what = "the value has returned other bytes than before";
            Err(
                Error::new(ErrorKind::InvalidInput, "register a region", what)
                    .with_help("implement `AsRef` so that it always returns the same bytes"),
            )
        })
    }

    pub(crate) fn from_dmabuf(
        engine: &Owner,
        domains: &[Option<Domain>],
        fd: OwnedFd,
        offset: u64,
        len: usize,
    ) -> Result<Self> {
        let returned = Returned::default();
        Self::new(engine, domains, limited(len)?, returned, move |pd| {
            let region = pd.reg_dmabuf(fd.as_fd(), offset, len, ACCESS)?;
            Ok(Memory::Device(region))
        })
    }

    fn new(
        engine: &Owner,
        domains: &[Option<Domain>],
        len: usize,
        returned: Returned,
        mut register: impl FnMut(&ProtectionDomain) -> Result<Memory> + Send + 'static,
    ) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        let register_in = |domain: &Option<Domain>| {
            let Some(domain) = domain else {
                return Ok(None);
            };
            Ok(Some(Registered {
                generation: domain.generation,
                memory: register(&domain.pd)?,
            }))
        };
        let registered = domains
            .iter()
            .map(register_in)
            .collect::<Result<Vec<_>>>()?;
        let uses = Arc::new(Uses {
            count: Mutex::new(1),
            none: Condvar::new(),
        });
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        lock(&engine.releases.registered).insert(id);
        Ok(Self(Arc::new(RegionMemory {
            id,
            engine: engine.id,
            len,
            is_writable: !matches!(
                registered.iter().flatten().next(),
                Some(Registered {
                    memory: Memory::Frozen(_),
                    ..
                })
            ),
            register: Mutex::new(Box::new(register)),
            registered: Mutex::new(registered),
            returned,
            uses: Notify {
                id,
                uses,
                releases: Arc::clone(&engine.releases),
            },
        })))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if transfers can write to the memory.
    pub fn is_writable(&self) -> bool {
        self.0.is_writable
    }

    /// Copies bytes starting at `offset` out of the region.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the range is out of bounds.
    /// - [`ErrorKind::Unsupported`]: the memory is a dma-buf, which the processor does not access.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        match self.0.any_memory()? {
            Memory::Shared(region) => region.read(offset, into),
            Memory::Frozen(frozen) => {
                let end = offset.saturating_add(into.len());
                let from = frozen.get(offset..end).ok_or_else(|| {
                    let what = format!("{offset}..{end} of {} bytes", frozen.len());
                    Error::new(ErrorKind::InvalidInput, "read a region", what)
                })?;
                into.copy_from_slice(from);
                Ok(())
            }
            Memory::Device(_) => Err(no_access("read a region", "a dma-buf")),
        }
    }

    /// Copies bytes into the region, starting at `offset`. A transfer of these bytes that is in
    /// flight sends the old or the new ones.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: the range is out of bounds.
    /// - [`ErrorKind::Unsupported`]: the memory is a dma-buf, or that of a value which is not
    ///   written ([`Engine::register`](crate::Engine::register)).
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        match self.0.any_memory()? {
            Memory::Shared(region) => region.write(offset, from),
            Memory::Frozen(_) => Err(no_access("write a region", "read-only")),
            Memory::Device(_) => Err(no_access("write a region", "a dma-buf")),
        }
    }

    /// Returns the region as peers address it. Give it to the peers that may access the region.
    pub fn remote(&self) -> RemoteRegion {
        let registered = lock(&self.0.registered);
        let key = |one: &Option<Registered>| match one {
            Some(registered) => registered.memory.remote(),
            None => NO_KEY,
        };
        RemoteRegion {
            id: self.0.id,
            keys: registered.iter().map(key).collect(),
        }
    }

    /// Gives up the region, and returns a handle that waits until no device can access the memory
    /// and it is freed. Other clones and transfers in flight prevent that until they have ended.
    pub fn release(self) -> Release {
        Release {
            uses: Arc::clone(&self.0.uses.uses),
            returned: Arc::clone(&self.0.returned),
        }
    }
}

impl RegionMemory {
    /// Returns the memory as registered with a device of this generation.
    pub(crate) fn memory(&self, device: usize, generation: u64) -> Option<Memory> {
        let registered = lock(&self.registered);
        let registered = registered[device].as_ref()?;
        (registered.generation == generation).then(|| registered.memory.clone())
    }

    /// Returns the part of the memory that a queue pair holds for a request which begins with this
    /// byte: the whole memory, if a token can name it.
    pub(crate) fn part(&self, offset: usize) -> usize {
        match u32::try_from(self.len) {
            Ok(_) => 0,
            Err(_) => offset / PART,
        }
    }

    fn any_memory(&self) -> Result<Memory> {
        let registered = lock(&self.registered);
        let memory = registered.iter().flatten().next();
        let memory = memory.map(|registered| registered.memory.clone());
        memory.ok_or_else(|| no_access("access a region", "not registered"))
    }

    pub(crate) fn uses(&self) -> Arc<Uses> {
        Arc::clone(&self.uses.uses)
    }

    /// Registers the memory with a device that was opened again, and returns its new key.
    pub(crate) fn register_again(&self, device: usize, domain: &Domain) -> Result<RemoteMemory> {
        let memory = lock(&self.register)(&domain.pd)?;
        let key = memory.remote();
        let registered = Registered {
            generation: domain.generation,
            memory,
        };
        let old = lock(&self.registered)[device].replace(registered);
        // Deregistered without the lock.
        drop(old);
        Ok(key)
    }
}

/// The engine that a new region belongs to.
pub(crate) struct Owner {
    pub(crate) id: u64,
    pub(crate) releases: Arc<Releases>,
}

/// Memory that is being released ([`Region::release`]).
///
/// # Example
/// ```no_run
/// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
/// let release = engine.alloc(4096)?.release();
/// release.wait(std::time::Duration::from_secs(5))?;
/// assert!(release.is_done());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Release {
    uses: Arc<Uses>,
    returned: Returned,
}

impl Release {
    /// Returns `true` if the memory is deregistered.
    pub fn is_done(&self) -> bool {
        *lock(&self.uses.count) == 0
    }

    /// Waits until the memory is deregistered.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]: clones of the region exist, transfers use it, or a queue pair has
    /// requests in flight that may use it. The memory is released as soon as they have ended, also
    /// without this handle. It is never released if a driver cannot destroy such a queue pair.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        let uses = &*self.uses;
        let (count, _) = uses
            .none
            .wait_timeout_while(lock(&uses.count), timeout, |count| *count > 0)
            .unwrap_or_else(PoisonError::into_inner);
        if *count == 0 {
            return Ok(());
        }
        let what = format!("{} users of the memory are left after {timeout:?}", *count);
        Err(Error::new(ErrorKind::TimedOut, "release a region", what)
            .with_help("drop the clones of the region, and wait for its transfers"))
    }

    /// Returns the value from which the region was registered
    /// ([`Engine::register`](crate::Engine::register),
    /// [`Engine::register_mut`](crate::Engine::register_mut)), after [`wait`](Self::wait) has
    /// succeeded.
    ///
    /// # Errors
    /// Returns `self` if the memory is still in use, if the region was registered from a value of
    /// another type or from none, or if a driver could not deregister it.
    ///
    /// # Example
    /// ```no_run
    /// use std::time::Duration;
    /// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
    /// let region = engine.register_mut(vec![0; 4096])?;
    /// // after transfers into it
    /// let release = region.release();
    /// release.wait(Duration::from_secs(5))?;
    /// let bytes: Vec<u8> = release.into_owner().expect("not in use");
    /// # Ok(()) }
    /// ```
    pub fn into_owner<T: 'static>(self) -> Result<T, Self> {
        let taken = {
            let mut returned = lock(&self.returned.0);
            match returned.take().map(Box::<dyn Any + Send>::downcast::<T>) {
                Some(Ok(value)) => Some(*value),
                Some(Err(other)) => {
                    *returned = Some(other);
                    None
                }
                None => None,
            }
        };
        taken.ok_or(self)
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for RegionMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("id", &self.id)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Returns the protection domain of the first open device.
fn first<'a>(domains: &'a [Option<Domain>], call: &'static str) -> Result<&'a ProtectionDomain> {
    let domain = domains.iter().flatten().next();
    let domain = domain.ok_or_else(|| {
        let what = "no device of the engine works";
        Error::new(ErrorKind::Disconnected, call, what)
    })?;
    Ok(&domain.pd)
}

/// Refuses memory that one scatter entry cannot name.
fn limited(len: usize) -> Result<usize> {
    if u32::try_from(len).is_ok() {
        return Ok(len);
    }
    let what = format!("{len} bytes; at most 2^32-1 are allowed");
    Err(
        Error::new(ErrorKind::InvalidInput, "register a region", what)
            .with_help("register several regions"),
    )
}

pub(crate) fn out_of_bounds() -> Error {
    Error::new(ErrorKind::InvalidInput, "transfer", "out of bounds")
}

fn no_access(call: &'static str, what: &str) -> Error {
    Error::new(
        ErrorKind::Unsupported,
        call,
        format!("the memory is {what}"),
    )
}

#[cfg(test)]
#[path = "region_tests.rs"]
pub(crate) mod tests;
