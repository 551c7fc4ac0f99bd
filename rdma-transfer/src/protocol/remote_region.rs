//! Regions of a peer.

use ibverbs::RemoteMemory;
use serde::{Deserialize, Serialize};

/// A peer's region: its identity, and its address and key for each device of the peer.
///
/// # Example
/// ```no_run
/// # fn f(engine: &rdma_transfer::Engine) -> rdma_transfer::Result<()> {
/// // The peers get it as JSON.
/// let text = serde_json::to_string(&engine.alloc(4096)?.remote()).expect("JSON");
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteRegion {
    /// Number of the region in the process of the peer.
    pub id: u64,
    /// The region as each device of the peer has registered it. The keys of a device that was
    /// opened again are replaced over the control connection.
    pub keys: Vec<RemoteMemory>,
}

impl RemoteRegion {
    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.keys.iter().map(|key| key.len).max().unwrap_or(0)
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
