//! Memory registered with every device of an engine, and its remote keys.

use std::fmt;
use std::sync::Arc;

use ibverbs::{MemoryOptions, RemoteMemory, Result, SharedRegion};
use serde::{Deserialize, Serialize};

use crate::nic::{ACCESS, Nic};

/// Memory that is the source or the target of transfers. Clones refer to the same memory.
///
/// Peers can write to it at any time, so there are no references to its bytes: they are copied in
/// and out. The memory is freed when the last clone was dropped and the queue pairs that have used
/// it as a source are destroyed.
#[derive(Clone)]
pub struct Region {
    /// The same memory, registered with each device.
    pub(crate) registered: Vec<SharedRegion>,
    /// Identity of the engine.
    pub(crate) engine: u64,
}

impl Region {
    /// Allocates memory and registers it with each device. There is at least one.
    pub(crate) fn register(
        nics: &[Arc<Nic>],
        len: usize,
        options: MemoryOptions,
        engine: u64,
    ) -> Result<Self> {
        let mut registered = vec![nics[0].pd().shared_with(len, ACCESS, options)?];
        for nic in &nics[1..] {
            registered.push(registered[0].register_in(nic.pd(), ACCESS)?);
        }
        Ok(Self { registered, engine })
    }

    fn first(&self) -> &SharedRegion {
        &self.registered[0]
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.first().len()
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.first().is_empty()
    }

    /// Copies bytes starting at `offset` out of the region.
    ///
    /// # Errors
    /// [`InvalidInput`](ibverbs::ErrorKind::InvalidInput) if the range is out of bounds.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> Result<()> {
        self.first().read(offset, into)
    }

    /// Copies bytes into the region, starting at `offset`. A transfer of these bytes that is in
    /// flight sends the old or the new ones.
    ///
    /// # Errors
    /// [`InvalidInput`](ibverbs::ErrorKind::InvalidInput) if the range is out of bounds.
    pub fn write(&self, offset: usize, from: &[u8]) -> Result<()> {
        self.first().write(offset, from)
    }

    /// Returns the region as peers address it. Give it to the peers that may write to the region.
    pub fn remote(&self) -> RemoteRegion {
        let keys = self.registered.iter().map(SharedRegion::remote).collect();
        RemoteRegion { keys }
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("len", &self.len())
            .field("devices", &self.registered.len())
            .finish_non_exhaustive()
    }
}

/// A peer's region: its address and its key for each device of the peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// The region as each device of the peer has registered it.
    pub keys: Vec<RemoteMemory>,
}

impl RemoteRegion {
    /// Returns the length in bytes that all devices have registered.
    pub fn len(&self) -> u64 {
        self.keys.iter().map(|key| key.len).min().unwrap_or(0)
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
