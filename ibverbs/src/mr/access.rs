//! What the device may do with memory.

use bitflags::bitflags;

bitflags! {
    /// Access to memory, or what a queue pair lets its peer do (`enum ibv_access_flags`).
    ///
    /// # Example
    /// ```
    /// use ibverbs::AccessFlags;
    /// let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    /// assert!(access.contains(AccessFlags::REMOTE_READ) && !access.contains(AccessFlags::REMOTE_ATOMIC));
    /// ```
    ///
    /// # References
    /// [`ibv_reg_mr(3)`](https://man7.org/linux/man-pages/man3/ibv_reg_mr.3.html)
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
        /// Memory windows may be bound to it ([`Window`](crate::mw::Window)). `IBV_ACCESS_MW_BIND`.
        const MW_BIND = rdma_sys::IBV_ACCESS_MW_BIND;
    }
}

impl AccessFlags {
    /// What opens memory to peers directly.
    pub(crate) const REMOTE: Self = Self::REMOTE_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC);
}

bitflags! {
    /// All flags that a registration knows.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RawAccess: u32 {
        const ON_DEMAND = rdma_sys::IBV_ACCESS_ON_DEMAND;
        const RELAXED_ORDERING = rdma_sys::IBV_ACCESS_RELAXED_ORDERING;
        const ZERO_BASED = rdma_sys::IBV_ACCESS_ZERO_BASED;
        const _ = AccessFlags::all().bits();
    }
}

impl From<AccessFlags> for RawAccess {
    /// Unknown bits fall away: what they might ask for is not this crate's to grant.
    fn from(access: AccessFlags) -> Self {
        Self::from_bits_truncate(access.intersection(AccessFlags::all()).bits())
    }
}
