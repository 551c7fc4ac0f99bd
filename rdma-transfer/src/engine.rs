//! The engine: devices, their threads and the counters of immediates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ibverbs::{Error, ErrorKind, MemoryOptions, Result};

use crate::immediates::ImmCounter;
use crate::nic::Nic;
use crate::options::EngineOptions;
use crate::peer::PendingPeer;
use crate::region::Region;
use crate::shared::Shared;

/// Devices that transfer data together. Regions, peers and counters belong to one engine, which
/// can be dropped before them.
///
/// Each device has a thread that processes completions, so transfers make progress while the
/// program does something else.
#[derive(Clone)]
pub struct Engine(Arc<Shared>);

impl Engine {
    /// Opens devices by name. Transfers are striped over all of them. A name can occur more than
    /// once.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`]: there is no name, or an option is out of its limits.
    /// - [`ErrorKind::NotFound`]: a device does not exist, or its port has no address.
    /// - [`ErrorKind::Unsupported`]: a device is neither InfiniBand nor RoCE.
    pub fn open(devices: &[&str], options: EngineOptions) -> Result<Self> {
        static NEXT_ID: AtomicU64 = AtomicU64::new(0);
        check(devices, &options)?;
        let nics = devices.iter().enumerate();
        let nics = nics
            .map(|(index, name)| Ok(Arc::new(Nic::open(index, name, &options)?)))
            .collect::<Result<Vec<_>>>()?;
        let stripe = nics
            .iter()
            .fold(options.stripe, |stripe, nic| stripe.min(nic.max_message()));
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::new(Shared::new(id, nics, options, stripe));
        shared.start()?;
        Ok(Self(shared))
    }

    /// Allocates and registers `len` zeroed bytes.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::shared`](ibverbs::ProtectionDomain::shared).
    pub fn alloc(&self, len: usize) -> Result<Region> {
        self.alloc_with(len, MemoryOptions::new())
    }

    /// Like [`alloc`](Self::alloc), with options, for example huge pages or relaxed ordering.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::shared_with`](ibverbs::ProtectionDomain::shared_with).
    pub fn alloc_with(&self, len: usize, options: MemoryOptions) -> Result<Region> {
        Region::register(&self.0.nics, len, options, self.0.id)
    }

    /// Creates the queue pairs for one peer.
    ///
    /// # Errors
    /// Those of [`ProtectionDomain::create_qp`](ibverbs::ProtectionDomain::create_qp), for example
    /// if a queue is longer than the device supports.
    pub fn new_peer(&self) -> Result<PendingPeer> {
        PendingPeer::create(&self.0)
    }

    /// Returns the counter of an immediate value. It also counts what arrived before this call.
    pub fn imm_counter(&self, value: u32) -> ImmCounter {
        ImmCounter::new(&self.0.immediates, value)
    }
}

fn check(devices: &[&str], options: &EngineOptions) -> Result<()> {
    let limits = [
        (!devices.is_empty(), "no device was named"),
        (options.queue_pairs >= 1, "queue_pairs is less than 1"),
        (options.stripe >= 1, "stripe is less than 1 byte"),
        (options.max_send_wr >= 2, "max_send_wr is less than 2"),
        (options.max_recv_wr >= 1, "max_recv_wr is less than 1"),
        (
            (1..=31).contains(&options.timeout),
            "timeout is not 1 to 31",
        ),
        (options.retry_cnt <= 6, "retry_cnt is not 0 to 6"),
    ];
    match limits.iter().find(|(holds, _)| !holds) {
        None => Ok(()),
        Some((_, what)) => Err(Error::new(ErrorKind::InvalidInput, "open an engine", *what)),
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("devices", &self.0.nics)
            .field("options", &self.0.options)
            .finish_non_exhaustive()
    }
}
