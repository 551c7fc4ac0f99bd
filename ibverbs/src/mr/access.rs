//! Access rights to memory.

use bitflags::bitflags;

bitflags! {
    /// Access rights to memory, or rights that a queue pair grants its peer
    /// (`enum ibv_access_flags`).
    ///
    /// # Example
    /// ```
    /// use ibverbs::AccessFlags;
    /// let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    /// assert!(access.contains(AccessFlags::REMOTE_READ) && !access.contains(AccessFlags::REMOTE_ATOMIC));
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct AccessFlags: u32 {
        /// The local device may write, which receives and RDMA READs need:
        /// `IBV_ACCESS_LOCAL_WRITE`.
        const LOCAL_WRITE = rdma_sys::IBV_ACCESS_LOCAL_WRITE;
        /// Peers may write: `IBV_ACCESS_REMOTE_WRITE`.
        const REMOTE_WRITE = rdma_sys::IBV_ACCESS_REMOTE_WRITE;
        /// Peers may read: `IBV_ACCESS_REMOTE_READ`.
        const REMOTE_READ = rdma_sys::IBV_ACCESS_REMOTE_READ;
        /// Peers may do atomic operations: `IBV_ACCESS_REMOTE_ATOMIC`.
        const REMOTE_ATOMIC = rdma_sys::IBV_ACCESS_REMOTE_ATOMIC;
        /// Memory windows ([`Window`](crate::mw::Window)) may be bound to the memory:
        /// `IBV_ACCESS_MW_BIND`.
        const MW_BIND = rdma_sys::IBV_ACCESS_MW_BIND;
        /// Peers may [flush](crate::wr::flush) writes, so that all processors and devices see them:
        /// `IBV_ACCESS_FLUSH_GLOBAL`.
        const FLUSH_GLOBAL = rdma_sys::IBV_ACCESS_FLUSH_GLOBAL;
        /// Peers may [flush](crate::wr::flush) writes, so that they survive a power failure:
        /// `IBV_ACCESS_FLUSH_PERSISTENT`. The memory must be persistent.
        const FLUSH_PERSISTENT = rdma_sys::IBV_ACCESS_FLUSH_PERSISTENT;
    }
}

impl AccessFlags {
    /// The rights that give peers direct access.
    pub(crate) const REMOTE: Self = Self::REMOTE_WRITE
        .union(Self::REMOTE_READ)
        .union(Self::REMOTE_ATOMIC);

    /// The rights that let peers read, directly or through a memory window.
    pub(crate) const PEER_READS: Self = Self::REMOTE_READ
        .union(Self::REMOTE_ATOMIC)
        .union(Self::MW_BIND);
}

bitflags! {
    /// All flags of a registration.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct RawAccess: u32 {
        const ON_DEMAND = rdma_sys::IBV_ACCESS_ON_DEMAND;
        const RELAXED_ORDERING = rdma_sys::IBV_ACCESS_RELAXED_ORDERING;
        const ZERO_BASED = rdma_sys::IBV_ACCESS_ZERO_BASED;
        const _ = AccessFlags::all().bits();
    }
}

impl From<AccessFlags> for RawAccess {
    /// Drops unknown bits, which might grant rights that this crate does not account for.
    fn from(access: AccessFlags) -> Self {
        Self::from_bits_truncate(access.intersection(AccessFlags::all()).bits())
    }
}
