//! The manners of a device: where real providers differ.

/// What a device has, and what it does where providers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about a device"
)]
pub struct Profile {
    /// Has queue pairs with the extended verbs (`ibv_wr_*`).
    pub extended_qp: bool,
    /// Has completion queues with the extended verbs (`ibv_start_poll` …).
    pub extended_cq: bool,
    /// Those have timestamps, VLAN tags and flow tags, too.
    pub extra_fields: bool,
    /// Has what neither software driver has: XRC, raw packets, thread and parent domains, path
    /// migration, queues that change their length.
    pub more_verbs: bool,
    /// What `ibv_query_device` says of its maker: `0xffffff` for Soft-RoCE.
    pub vendor_id: u32,
    /// Has memory windows.
    pub windows: bool,
    /// Posts return negative error numbers.
    pub negative_errno: bool,
    /// Is an iWARP device; InfiniBand else.
    pub iwarp: bool,
    /// A send that meets no receive.
    pub not_ready: NotReady,
    /// The completions of a queue pair that is destroyed.
    pub after_destroy: AfterDestroy,
    /// A request that is posted to a queue pair in the error state.
    pub dead_posts: DeadPosts,
}

/// What becomes of a send when the peer has no receive posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// It waits for one (`rnr_retry` 7).
    Wait,
    /// It fails, and the queue pair with it.
    Fail,
    /// It succeeds, and both queue pairs go to the error state (siw: the connection is dropped).
    Lose,
}

/// What becomes of the completions of a queue pair that is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterDestroy {
    /// Those in the completion queue stay there.
    Leave,
    /// They vanish.
    Drop,
    /// They stay, and what was in flight is flushed after them.
    LeaveAndFlush,
}

/// What becomes of a request posted to a queue pair in the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadPosts {
    /// It completes as flushed.
    Flush,
    /// The post succeeds, and nothing ever comes of it.
    Swallow,
}

impl Profile {
    /// As Soft-RoCE behaves: extended verbs, positive error numbers.
    pub const RXE: Self = Self {
        extended_qp: true,
        extended_cq: true,
        extra_fields: false,
        more_verbs: false,
        vendor_id: 0,
        windows: true,
        negative_errno: false,
        iwarp: false,
        not_ready: NotReady::Wait,
        after_destroy: AfterDestroy::Leave,
        dead_posts: DeadPosts::Flush,
    };

    /// As Soft-iWARP behaves: classic verbs only, negative error numbers, flushes after a destroy.
    /// Unlike it, this one connects without `rdma_cm`.
    pub const SIW: Self = Self {
        extended_qp: false,
        extended_cq: false,
        extra_fields: false,
        more_verbs: false,
        vendor_id: 0,
        windows: false,
        negative_errno: true,
        iwarp: true,
        not_ready: NotReady::Lose,
        after_destroy: AfterDestroy::LeaveAndFlush,
        dead_posts: DeadPosts::Swallow,
    };
}
