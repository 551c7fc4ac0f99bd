//! What the device may do with memory.

use bitflags::bitflags;

bitflags! {
    /// Access to memory, or what a queue pair lets its peer do (`enum ibv_access_flags`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The device may write on behalf of this host: receives, the sink of a read. `IBV_ACCESS_LOCAL_WRITE`.
        const LOCAL_WRITE = rdma_sys::IBV_ACCESS_LOCAL_WRITE;
        /// A peer may write. `IBV_ACCESS_REMOTE_WRITE`.
        const REMOTE_WRITE = rdma_sys::IBV_ACCESS_REMOTE_WRITE;
        /// A peer may read. `IBV_ACCESS_REMOTE_READ`.
        const REMOTE_READ = rdma_sys::IBV_ACCESS_REMOTE_READ;
        /// A peer may do atomics. `IBV_ACCESS_REMOTE_ATOMIC`.
        const REMOTE_ATOMIC = rdma_sys::IBV_ACCESS_REMOTE_ATOMIC;
    }
}
