//! Behavior of a device where real providers differ.

/// Features and behavior of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the features of a device are independent of each other"
)]
pub struct Profile {
    /// Supports extended queue pairs (`ibv_wr_*`).
    pub extended_qp: bool,
    /// Supports extended completion queues (`ibv_start_poll`).
    pub extended_cq: bool,
    /// Extended completion queues also support timestamps, VLAN tags and flow tags.
    pub extra_fields: bool,
    /// Supports verbs that neither software driver has: XRC, raw packets, thread and parent
    /// domains, path migration, and resizing of queues.
    pub more_verbs: bool,
    /// `vendor_id` returned by `ibv_query_device`. Soft-RoCE returns `0xffffff`.
    pub vendor_id: u32,
    /// Supports memory windows.
    pub windows: bool,
    /// Posts return negative error numbers.
    pub negative_errno: bool,
    /// Is an iWARP device. Otherwise the device is a RoCE device.
    pub iwarp: bool,
    /// Behavior of a send without a posted receive.
    pub not_ready: NotReady,
    /// Behavior of completions when their queue pair is destroyed.
    pub after_destroy: AfterDestroy,
    /// Behavior of a post to a queue pair in the error state.
    pub error_state_posts: ErrorStatePosts,
}

/// Behavior of a send when the peer has no posted receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReady {
    /// The send waits for a receive, as with `rnr_retry` 7.
    Wait,
    /// The send fails, and the queue pair enters the error state.
    Fail,
    /// The send succeeds, and both queue pairs enter the error state. This is how siw drops a
    /// connection.
    Disconnect,
}

/// Behavior of completions when their queue pair is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterDestroy {
    /// Completions stay in the completion queue.
    Leave,
    /// Completions are removed from the completion queue.
    Drop,
    /// Completions stay, and requests in flight complete as flushed.
    LeaveAndFlush,
}

/// Behavior of a post to a queue pair in the error state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorStatePosts {
    /// The request completes as flushed.
    Flush,
    /// The post succeeds, but the request never completes.
    Discard,
}

impl Profile {
    /// Behavior of Soft-RoCE: extended verbs, positive error numbers.
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
        error_state_posts: ErrorStatePosts::Flush,
    };

    /// Behavior of Soft-iWARP: only classic verbs, negative error numbers, flushes on destroy.
    /// Unlike Soft-iWARP, queue pairs connect without `rdma_cm`.
    pub const SIW: Self = Self {
        extended_qp: false,
        extended_cq: false,
        extra_fields: false,
        more_verbs: false,
        vendor_id: 0,
        windows: false,
        negative_errno: true,
        iwarp: true,
        not_ready: NotReady::Disconnect,
        after_destroy: AfterDestroy::LeaveAndFlush,
        error_state_posts: ErrorStatePosts::Discard,
    };
}
