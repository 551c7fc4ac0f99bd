//! The engine: devices, memory, peers and the counters of immediates.

use std::fmt;
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use ibverbs::{Error, ErrorKind, MemoryOptions, Result};

use crate::api::peer::Peer;
use crate::deferred;
use crate::device::nic::Nic;
use crate::failure::lock;
use crate::memory::region::{Owner, Region, Releases};
use crate::options::EngineOptions;
use crate::protocol::Token;
use crate::protocol::control::{Control, StreamControl};
use crate::protocol::immediates::ImmCounter;
use crate::protocol::message::{MAX_PATHS, MAX_REQUESTS};
use crate::runtime::shared::{Core, Shared};
use crate::waker::Waker;

/// Devices that transfer data together. Regions, peers and counters belong to one engine, which
/// can be dropped before them.
///
/// Each device has a thread that processes completions, so transfers make progress while the
/// program does something else.
///
/// # Example
/// ```no_run
/// use rdma_transfer::{Engine, EngineOptions, Token};
/// let engine = Engine::open(&["mlx5_0", "mlx5_1"], EngineOptions::new())?;
/// let region = engine.alloc(1 << 20)?;
/// let token = Token::new(b"a random text of at least 16 bytes")?;
/// let peer = engine.dial("10.0.0.2:7600", &token)?;
/// # Ok::<(), rdma_transfer::Error>(())
/// ```
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

impl Engine {
    /// Opens devices by name. Transfers are striped over all of them. A name can occur more than
    /// once.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: there is no name, or an option is out of its limits.
    /// - [`ErrorKind::NotFound`]: a device does not exist, or its port has no address.
    /// - [`ErrorKind::Unsupported`]: a device has no reliable connections, for example that of EFA.
    pub fn open(devices: &[&str], options: EngineOptions) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        check(devices, &options)?;
        let nics = devices.iter().enumerate();
        let nics = nics
            .map(|(index, name)| Ok(Arc::new(Nic::open(index, name, &options)?)))
            .collect::<Result<Vec<_>>>()?;
        let releases = Releases {
            registered: Mutex::default(),
            count: AtomicU64::new(0),
            wakers: nics.iter().map(|nic| nic.waker.clone()).collect(),
        };
        let owner = Owner {
            id: NEXT_ID.fetch_add(1, Ordering::Relaxed),
            releases: Arc::new(releases),
        };
        let core = Arc::new(Core::new(owner, nics, options, Waker::new()?));
        Ok(Self(Arc::new(Shared::new(core)?)))
    }

    /// Allocates and registers `len` zeroed bytes.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::shared`](ibverbs::ProtectionDomain::shared), and
    /// [`ErrorKind::Disconnected`] if no device works.
    pub fn alloc(&self, len: usize) -> Result<Region> {
        self.alloc_with(len, MemoryOptions::new())
    }

    /// Like [`alloc`](Self::alloc), with options, for example huge pages, memory of the caller or
    /// relaxed ordering.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::shared_with`](ibverbs::ProtectionDomain::shared_with), and
    /// [`ErrorKind::Disconnected`] if no device works.
    pub fn alloc_with(&self, len: usize, options: MemoryOptions) -> Result<Region> {
        self.add(|core| Region::alloc(&core.owner, &core.domains(), len, options))
    }

    /// Registers the bytes of a value without a copy: a `Vec<u8>`, a `Box<[u8]>`, a
    /// `bytes::Bytes`, a mapped file. The region can be the source of transfers of both sides, but
    /// not their target.
    ///
    /// The value is dropped when the memory is deregistered, or returned by
    /// [`Release::into_owner`](crate::Release::into_owner).
    ///
    /// # Errors
    /// Those of
    /// [`ProtectionDomain::frozen_shared_from`](ibverbs::ProtectionDomain::frozen_shared_from).
    /// [`ErrorKind::InvalidInput`] if there are 4 GiB or more.
    ///
    /// # Example
    /// ```no_run
    /// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
    /// let region = engine.register(std::fs::read("weights").expect("a file"))?;
    /// # Ok(()) }
    /// ```
    pub fn register<T>(&self, owner: T) -> Result<Region>
    where
        T: AsRef<[u8]> + Send + Sync + 'static,
    {
        self.add(|core| Region::from_owner(&core.owner, &core.domains(), owner))
    }

    /// Like [`register`](Self::register), for a value whose bytes transfers of both sides can also
    /// write: a `Vec<u8>`, a `Box<[u8]>`, a writable mapping of a file.
    /// [`Release::into_owner`](crate::Release::into_owner) returns it, with the bytes that have
    /// arrived.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::shared_from`](ibverbs::ProtectionDomain::shared_from), for
    /// example if the number of bytes is not a multiple of 8, and [`ErrorKind::Disconnected`] if no
    /// device works. The value is then dropped.
    pub fn register_mut<T>(&self, owner: T) -> Result<Region>
    where
        T: AsMut<[u8]> + Send + 'static,
    {
        self.add(|core| Region::from_owner_mut(&core.owner, &core.domains(), owner))
    }

    /// Registers `len` bytes of a dma-buf, starting at `offset`, for example memory of a GPU.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if a driver does not support it, and [`ErrorKind::InvalidInput`]
    /// for 4 GiB or more.
    pub fn register_dmabuf(&self, dmabuf: OwnedFd, offset: u64, len: usize) -> Result<Region> {
        self.add(|core| Region::from_dmabuf(&core.owner, &core.domains(), dmabuf, offset, len))
    }

    fn add(&self, create: impl FnOnce(&Core) -> Result<Region>) -> Result<Region> {
        let core = &self.0.core;
        deferred::run(|| {
            let mut regions = lock(&core.regions);
            let region = create(core)?;
            if regions.len() == regions.capacity() {
                regions.retain(|region| region.strong_count() > 0);
            }
            regions.push(Arc::downgrade(&region.0));
            Ok(region)
        })
    }

    /// Connects to the engine at the other end of a control connection, which must do the same.
    /// [`dial`](Self::dial) and [`accept`](Self::accept) make one. Does not wait: the paths are
    /// connected meanwhile, and transfers wait for the first one.
    ///
    /// # Errors
    /// Fails if the descriptor of the connection cannot be duplicated.
    pub fn connect(&self, control: impl Control + 'static) -> Result<Peer> {
        Peer::connect(&self.0, Box::new(control))
    }

    /// Connects to the engine that [accepts](Self::accept) at a TCP address with the same token.
    /// Does not wait for the handshake: a peer with another token is disconnected.
    ///
    /// # Errors
    /// [`ErrorKind::Os`]: the TCP connection fails.
    pub fn dial(&self, address: impl ToSocketAddrs, token: &Token) -> Result<Peer> {
        let stream = TcpStream::connect(address);
        self.over_tcp(stream, |stream| StreamControl::initiator(stream, token))
    }

    /// Waits for an engine that [dials](Self::dial) with the same token, and connects to it. Does
    /// not wait for the handshake: a peer with another token is disconnected.
    ///
    /// # Errors
    /// [`ErrorKind::Os`]: accepting fails.
    pub fn accept(&self, listener: &TcpListener, token: &Token) -> Result<Peer> {
        let stream = listener.accept().map(|(stream, _)| stream);
        self.over_tcp(stream, |stream| StreamControl::responder(stream, token))
    }

    /// Like [`dial`](Self::dial), without a token. Every program in the network can take the place
    /// of the peer, and [access the memory](crate#security) of this engine.
    ///
    /// # Errors
    /// Those of [`dial`](Self::dial).
    pub fn dial_unauthenticated(&self, address: impl ToSocketAddrs) -> Result<Peer> {
        self.over_tcp(TcpStream::connect(address), StreamControl::new)
    }

    /// Like [`accept`](Self::accept), without a token. Every program that can connect to the
    /// listener can [access the memory](crate#security) of this engine.
    ///
    /// # Errors
    /// Those of [`accept`](Self::accept).
    pub fn accept_unauthenticated(&self, listener: &TcpListener) -> Result<Peer> {
        let stream = listener.accept().map(|(stream, _)| stream);
        self.over_tcp(stream, StreamControl::new)
    }

    fn over_tcp(
        &self,
        stream: std::io::Result<TcpStream>,
        control: impl FnOnce(TcpStream) -> std::io::Result<StreamControl<TcpStream>>,
    ) -> Result<Peer> {
        let control = stream.and_then(|stream| {
            stream.set_nodelay(true)?;
            control(stream)
        });
        let failed =
            |error: std::io::Error| Error::new(ErrorKind::Os, "connect", error.to_string());
        self.connect(control.map_err(failed)?)
    }

    /// Returns the counter of an immediate value. It also counts what arrived before this call.
    pub fn imm_counter(&self, value: u32) -> ImmCounter {
        let core: Weak<Core> = Arc::downgrade(&self.0.core);
        ImmCounter::new(&self.0.core.immediates, value, core)
    }

    /// Advances an engine without threads ([`EngineOptions::manual`]) once. `now` is the time for
    /// deadlines, backoff and stalls. It can be that of a simulation, and must not decrease.
    pub fn poll(&self, now: Instant) {
        let core = &self.0.core;
        deferred::run(|| {
            core.poll_control(now);
            for nic in &core.nics {
                core.poll_device(nic, now);
            }
        });
    }
}

fn check(devices: &[&str], options: &EngineOptions) -> Result<()> {
    let limits = [
        (!devices.is_empty(), "no device was named"),
        (options.queue_pairs >= 1, "queue_pairs is less than 1"),
        (
            options.queue_pairs.saturating_mul(devices.len()) <= options.max_paths,
            "queue_pairs for all devices together are more than max_paths",
        ),
        (
            options.max_paths <= MAX_PATHS,
            "max_paths is more than 4096",
        ),
        (options.stripe >= 1, "stripe is less than 1 byte"),
        (
            (2..=MAX_REQUESTS).contains(&options.max_send_wr),
            "max_send_wr is not 2 to 4096",
        ),
        (
            (1..=MAX_REQUESTS).contains(&options.max_recv_wr),
            "max_recv_wr is not 1 to 4096",
        ),
        (
            (1..=31).contains(&options.timeout),
            "timeout is not 1 to 31",
        ),
        (options.retry_cnt <= 6, "retry_cnt is not 0 to 6"),
        (options.stall > Duration::ZERO, "stall is zero"),
        (options.min_backoff > Duration::ZERO, "min_backoff is zero"),
    ];
    match limits.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, what)) => Err(Error::new(ErrorKind::InvalidInput, "open an engine", *what)),
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("devices", &self.0.core.nics)
            .field("options", &self.0.core.options)
            .finish_non_exhaustive()
    }
}
