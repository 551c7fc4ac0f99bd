//! Descriptions of objects, their changes, and events.

use crate::abi::core::access;
use crate::memory::Part;

/// Memory of an object.
#[derive(Clone, Debug)]
pub struct Buffer<'a> {
    /// The parts, in the order of their offsets.
    pub parts: Vec<Part<'a>>,
    /// Offset of the first byte of the object.
    pub offset: u64,
}

/// A new memory key.
#[derive(Clone, Debug)]
pub struct MemoryKey<'a> {
    /// Low byte of the key.
    pub variant: u8,
    /// Protection domain.
    pub pd: u32,
    /// Rights (`IBV_ACCESS_*`).
    pub access: u32,
    /// Address of the first byte in requests.
    pub iova: u64,
    /// Length in bytes.
    pub length: u64,
    /// The memory.
    pub memory: KeyMemory<'a>,
}

/// Kinds of memory keys.
#[derive(Clone, Debug)]
pub enum KeyMemory<'a> {
    /// A key that permits no access.
    Nothing,
    /// Registered memory.
    Region(Buffer<'a>),
    /// A window of this type, 1 or 2, which a request binds to registered memory.
    Window(u8),
}

/// A new completion queue.
#[derive(Clone, Debug)]
pub struct CompletionQueue<'a> {
    /// Number of entries: a power of 2.
    pub entries: u32,
    /// Size of an entry in bytes: 64 or 128.
    pub entry_size: u32,
    /// The entries.
    pub memory: Buffer<'a>,
    /// The doorbell record of 8 bytes.
    pub doorbell: Buffer<'a>,
}

/// Transports of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Reliable connection.
    Reliable,
    /// A queue pair of the driver, which changes memory keys.
    KeyChanges,
    /// Unreliable connection.
    Unreliable,
    /// Datagrams.
    Datagram,
    /// Datagrams of the subnet management: queue pair 0 of the port.
    SubnetManagement,
    /// Datagrams of the other management: queue pair 1 of the port.
    GeneralServices,
    /// The sending side of an extended reliable connection.
    XrcInitiator,
    /// The receiving side of an extended reliable connection.
    XrcTarget,
}

/// A new shared receive queue.
#[derive(Clone, Debug)]
pub struct SharedReceiveQueue<'a> {
    /// Protection domain.
    pub pd: u32,
    /// Number in completions, from which the driver finds an XRC queue.
    pub user_index: u32,
    /// XRC domain and completion queue of an XRC queue.
    pub xrc: Option<(u32, u32)>,
    /// Number of requests in memory: a power of 2.
    pub requests: u32,
    /// Size of a request in bytes, as a power of 2 of at least 5.
    pub log_request_size: u32,
    /// The requests.
    pub memory: Buffer<'a>,
    /// The doorbell record of 8 bytes.
    pub doorbell: Buffer<'a>,
}

/// A new queue pair.
#[derive(Clone, Debug)]
pub struct QueuePair<'a> {
    /// Transport.
    pub service: Service,
    /// Protection domain.
    pub pd: u32,
    /// Completion queue of send requests.
    pub send_cq: u32,
    /// Completion queue of receive requests.
    pub receive_cq: u32,
    /// Shared receive queue, if it has one.
    pub srq: Option<u32>,
    /// XRC domain of the receiving side.
    pub xrcd: Option<u32>,
    /// Number in completions, from which the driver finds the queue pair.
    pub user_index: u32,
    /// Number of receive requests: 0 or a power of 2.
    pub receives: u32,
    /// Size of a receive request in bytes, as a power of 2.
    pub log_receive_size: u32,
    /// Number of blocks of 64 bytes of the send queue: 0 or a power of 2.
    pub send_blocks: u32,
    /// The receive queue, which the send queue follows.
    pub memory: Buffer<'a>,
    /// The doorbell record of 8 bytes.
    pub doorbell: Buffer<'a>,
}

/// States of queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// After the creation.
    Reset = 0,
    /// Receive requests can be posted.
    Init = 1,
    /// Messages are received.
    ReadyToReceive = 2,
    /// Messages are sent and received.
    ReadyToSend = 3,
    /// All requests complete as flushed.
    Error = 6,
}

/// Changes of a queue pair. What is `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// Rights of the peer (`IBV_ACCESS_*`).
    pub access: Option<u32>,
    /// Q_Key of datagrams.
    pub qkey: Option<u32>,
    /// Service level of the path to the peer.
    pub service_level: Option<u8>,
    /// Path MTU (`ibv_mtu`).
    pub path_mtu: Option<u8>,
    /// Number of the peer.
    pub peer: Option<u32>,
    /// Sequence number of the first packet that arrives.
    pub receive_psn: Option<u32>,
    /// Sequence number of the first packet to send.
    pub send_psn: Option<u32>,
    /// Largest number of RDMA READ and atomic operations in flight that the peer sends.
    pub reads_of_peer: Option<u8>,
    /// Largest number of RDMA READ and atomic operations in flight to the peer.
    pub reads: Option<u8>,
    /// Code of the time that the peer waits if no receive request is posted.
    pub min_rnr_timer: Option<u8>,
    /// Code of the time without an acknowledgement after which packets are repeated.
    pub timeout: Option<u8>,
    /// Number of repetitions after a missing acknowledgement.
    pub retries: Option<u8>,
    /// Number of repetitions if the peer has no receive request; 7 means no limit.
    pub rnr_retries: Option<u8>,
}

/// Events that the adapter reports to its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// An armed completion queue has a new entry.
    Completion(u32),
    /// A completion queue is overrun.
    CompletionQueueError(u32),
    /// A queue pair has received a request that is invalid.
    InvalidRequest(u32),
    /// A queue pair has received a request that accesses memory without the right to it.
    AccessError(u32),
    /// A queue pair in the error state takes no more requests from its shared receive queue.
    LastRequest(u32),
    /// A shared receive queue has fewer requests than its limit.
    LimitReached(u32),
    /// The link of the port has come up or gone down.
    Link {
        /// The new state.
        up: bool,
    },
    /// The adapter has failed: it executes nothing until a reset.
    Fatal,
}

/// Rights of memory keys and of queue pairs, as in [`MemoryKey::access`] and [`Change::access`].
pub mod rights {
    use super::access;

    /// The adapter writes received data.
    pub const LOCAL_WRITE: u32 = access::LOCAL_WRITE;
    /// Peers write with RDMA.
    pub const REMOTE_WRITE: u32 = access::REMOTE_WRITE;
    /// Peers read with RDMA.
    pub const REMOTE_READ: u32 = access::REMOTE_READ;
    /// Peers change numbers with atomic operations.
    pub const REMOTE_ATOMIC: u32 = access::REMOTE_ATOMIC;
    /// Windows can be bound.
    pub const BIND: u32 = access::MW_BIND;
}
