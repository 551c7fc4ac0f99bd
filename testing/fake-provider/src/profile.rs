//! Behavior of a device where real providers differ.

/// Features and behavior of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the features of a device are independent of each other"
)]
pub struct Profile {
    /// The provider that the loader reports. Users of the device conclude from it which guarantees
    /// the device gives.
    pub provider: Provider,
    /// Supports extended queue pairs (`ibv_wr_*`).
    pub extended_qp: bool,
    /// Supports extended completion queues (`ibv_start_poll`).
    pub extended_cq: bool,
    /// Extended completion queues also support timestamps, VLAN tags and flow tags.
    pub extra_fields: bool,
    /// Supports verbs that neither software driver has: XRC, DC, raw packets, thread and parent
    /// domains, path migration, resizing of queues, device memory, dma-bufs, advice, changes of
    /// access rights, and enhanced connection establishment.
    pub more_verbs: bool,
    /// `vendor_id` returned by `ibv_query_device`. Soft-RoCE returns `0xffffff`.
    pub vendor_id: u32,
    /// Reports a port on an InfiniBand link instead of Ethernet.
    pub infiniband_link: bool,
    /// Supports memory windows.
    pub windows: bool,
    /// Posts return negative error numbers.
    pub negative_errno: bool,
    /// Transport that the device reports. Users of the device conclude from it which guarantees
    /// the device gives, so it must match the other properties.
    pub transport: Transport,
    /// Order in which the requests of a send queue complete.
    pub send_order: SendOrder,
    /// Transmits unsignaled requests from the memory of the program, after they have completed.
    /// This is how siw sends large requests. A violation is recorded if that memory is changed or
    /// deregistered before [`Fake::finish_transmissions`](crate::Fake::finish_transmissions).
    pub transmits_unsignaled_late: bool,
    /// Transmits the responses to READs from the memory of the program, even after it was
    /// deregistered. This is how siw sends large responses. A violation is recorded if the memory
    /// is registered again before
    /// [`Fake::finish_transmissions`](crate::Fake::finish_transmissions).
    pub transmits_read_responses_late: bool,
    /// Behavior of a completion queue without space.
    pub overrun: Overrun,
    /// Destroying a queue pair or a completion queue, and deregistering memory, fails with
    /// `EBUSY`.
    pub busy: bool,
    /// Reports the first successful send and the first successful receive of a queue pair again,
    /// as flushed, when the queue pair enters the error state.
    pub spurious_flushes: bool,
    /// Behavior of a post to a queue pair that is not connected yet.
    pub unconnected_posts: UnconnectedPosts,
    /// Behavior of a send without a posted receive.
    pub not_ready: NotReady,
    /// Behavior of completions when their queue pair is destroyed.
    pub after_destroy: AfterDestroy,
    /// Behavior of a post to a queue pair in the error state.
    pub error_state_posts: ErrorStatePosts,
    /// Writes to the memory of failed receives and READs at each later poll, until their queue pair
    /// is destroyed.
    pub writes_after_failures: bool,
    /// Completes a flushed receive a second time, as successful. This is how the adapter of cxgb4
    /// reports a message that it had placed when the provider flushed the queue in software.
    pub completes_flushed_receives: bool,
    /// Functions that are NULL although the device accepts what needs them, by the names of their
    /// fields: `wr_*` of an extended queue pair, `read_*` of an extended completion queue, and
    /// `memcpy_*` of device memory. So libbnxt_re leaves `wr_send_inv`.
    pub unset: &'static [&'static str],
}

/// A provider of rdma-core, by the name of its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(
    missing_docs,
    reason = "each variant is the provider it is named after"
)]
pub enum Provider {
    BnxtRe,
    Cxgb4,
    Efa,
    Hns,
    Irdma,
    Mana,
    Mlx4,
    Ocrdma,
    Qedr,
    Rxe,
    Siw,
    /// The functions are not in a library.
    Unknown,
}

/// Transport and node type that a device reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RoCE: a channel adapter with the InfiniBand transport.
    Ib,
    /// iWARP. It has no datagrams and no atomic operations.
    Iwarp,
    /// A transport of the vendor, as EFA reports. The device has the operations of RoCE.
    Unspecified,
}

/// Order in which the requests of a send queue complete.
///
/// A completion is late until a poll finds the completion queue empty, or until the queue is
/// armed. The entries that are present are therefore polled before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOrder {
    /// The order of posting.
    InOrder,
    /// READs and atomic operations execute and complete late, in their own order. Later requests
    /// do not wait for them, except those with `IBV_SEND_FENCE`. This is how siw completes READs.
    ReadsLate,
    /// All requests execute in order, and their completions are late and reversed.
    Reversed,
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

/// Behavior of a completion queue without space for a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overrun {
    /// The test fails, because the program should have prevented it.
    Violation,
    /// The completion is lost, and the device raises `IBV_EVENT_CQ_ERR`. The queue pair stays in
    /// its state. This is the behavior of rxe and siw.
    Lose,
}

/// Behavior of a post to the send queue of a queue pair in RESET, INIT or RTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnconnectedPosts {
    /// The post fails, and `bad_wr` is set.
    Reject,
    /// The post fails without `bad_wr`, but the request is queued. It is executed when the queue
    /// pair enters RTS. This is the behavior of rxe.
    FailAndQueue,
    /// Only a post to an empty queue fails, as with [`FailAndQueue`](Self::FailAndQueue). Later
    /// posts succeed. This is the behavior of siw.
    FailOnceAndQueue,
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
    /// Completions stay. A poll looks up the queue pair by number: a completion has the `wr_id` of
    /// the oldest request of the queue pair that has the number then. If there is none, the poll
    /// consumes the completion and fails with `EINVAL`. This is how libefa polls before version 63.
    FindByNumber,
    /// Completions stay, and requests in flight complete as flushed. To poll such a completion is a
    /// violation: libqedr then follows the address of the queue pair, which it has freed.
    Poison,
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
        provider: Provider::Rxe,
        extended_qp: true,
        extended_cq: true,
        extra_fields: false,
        more_verbs: false,
        vendor_id: 0,
        infiniband_link: false,
        windows: true,
        negative_errno: false,
        transport: Transport::Ib,
        send_order: SendOrder::InOrder,
        transmits_unsignaled_late: false,
        transmits_read_responses_late: false,
        overrun: Overrun::Violation,
        busy: false,
        spurious_flushes: false,
        unconnected_posts: UnconnectedPosts::Reject,
        not_ready: NotReady::Wait,
        after_destroy: AfterDestroy::Leave,
        error_state_posts: ErrorStatePosts::Flush,
        writes_after_failures: false,
        completes_flushed_receives: false,
        unset: &[],
    };

    /// Behavior of Soft-iWARP: only classic verbs, negative error numbers, READs that later
    /// requests overtake, flushes on destroy.
    /// Unlike Soft-iWARP, queue pairs connect without `rdma_cm`.
    pub const SIW: Self = Self {
        provider: Provider::Siw,
        extended_qp: false,
        extended_cq: false,
        extra_fields: false,
        more_verbs: false,
        vendor_id: 0,
        infiniband_link: false,
        windows: false,
        negative_errno: true,
        transport: Transport::Iwarp,
        send_order: SendOrder::ReadsLate,
        transmits_unsignaled_late: true,
        transmits_read_responses_late: true,
        overrun: Overrun::Violation,
        busy: false,
        spurious_flushes: false,
        unconnected_posts: UnconnectedPosts::Reject,
        not_ready: NotReady::Disconnect,
        after_destroy: AfterDestroy::LeaveAndFlush,
        error_state_posts: ErrorStatePosts::Discard,
        writes_after_failures: false,
        completes_flushed_receives: false,
        unset: &[],
    };
}

/// Sets the functions of a table to NULL that a profile names.
macro_rules! unset {
    ($table:ident, $profile:expr, [$($field:ident),* $(,)?]) => {$(
        if $profile.unset.contains(&stringify!($field)) {
            $table.$field = None;
        }
    )*};
}

pub(crate) use unset;
