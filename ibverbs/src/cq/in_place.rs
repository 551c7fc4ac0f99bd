//! Completions that are read where the provider shows them.

#![allow(unsafe_code)]

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::time::Duration;

use rdma_sys::{
    ibv_cq_ex, ibv_wc_read_byte_len, ibv_wc_read_completion_ts,
    ibv_wc_read_completion_wallclock_ns, ibv_wc_read_cvlan, ibv_wc_read_dlid_path_bits,
    ibv_wc_read_flow_tag, ibv_wc_read_imm_data, ibv_wc_read_opcode, ibv_wc_read_qp_num,
    ibv_wc_read_sl, ibv_wc_read_slid, ibv_wc_read_src_qp, ibv_wc_read_vendor_err,
    ibv_wc_read_wc_flags,
};

use super::completion::UdSource;
use super::extended::narrow_slid;
use super::fields::{CqFields, Enabled, Field, FieldSet};
use super::says::{Ended, Says};
use super::status::{WcOpcode, WcStatus};
use crate::identity::{Direction, QueueId, WrId};
use crate::numbers::Qpn;
use crate::port::Lid;

/// A completion where the provider shows it: as a [`Completion`](crate::Completion), but each field
/// is read when it is asked for. [`QueuePair::retire_in_place`](crate::QueuePair::retire_in_place)
/// takes it.
///
/// It lives during one call of what
/// [`CompletionQueueEx::poll_each`](crate::cq_ex::CompletionQueueEx::poll_each) is given.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, Rc, Result,
///     cq_ex::{CompletionInPlace, CqFields},
/// };
/// fn done(completion: CompletionInPlace<'_, CqFields>, qp: &mut QueuePair<Rc>) -> Result<()> {
///     if !completion.is_success() {
///         println!("{} failed: {}", completion.qp_num(), completion.status());
///     }
///     qp.retire_in_place(completion)?.ok()
/// }
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
#[must_use = "a completion that is not retired keeps its place in the queue"]
pub struct CompletionInPlace<'poll, F: FieldSet> {
    shown: InPlace<'poll>,
    fields: PhantomData<F>,
}

/// What a [`Retired`](crate::Retired) of a poll in place has of the completion: the entry that the
/// provider shows.
///
/// # Example
/// ```no_run
/// use ibverbs::{Retired, cq_ex::InPlace};
/// fn print(retired: &Retired<InPlace<'_>>) {
///     println!("request {}: {} bytes", retired.tag(), retired.byte_len());
/// }
/// ```
///
/// # References
/// [`ibv_create_cq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq_ex.3.html)
#[derive(Clone, Copy, Debug)]
pub struct InPlace<'poll> {
    cq: NonNull<ibv_cq_ex>,
    poll: PhantomData<&'poll ibv_cq_ex>,
}

/// One read after the other of the current entry. The fields were all asked for when the queue was
/// made, or are always there.
macro_rules! shown {
    ($($name:ident: $kind:ty = $read:ident;)*) => {$(
        #[inline]
        fn $name(self) -> $kind {
            // SAFETY: the entry is current while the completion lives that shows it.
            unsafe { $read(self.cq.as_ptr()) }
        }
    )*};
}

impl Says for InPlace<'_> {
    shown! {
        opcode: u32 = ibv_wc_read_opcode;
        byte_len: u32 = ibv_wc_read_byte_len;
        wc_flags: u32 = ibv_wc_read_wc_flags;
        immediate: u32 = ibv_wc_read_imm_data;
        vendor_err: u32 = ibv_wc_read_vendor_err;
    }
}

impl Ended for InPlace<'_> {
    #[inline]
    fn wr_id(self) -> WrId {
        // SAFETY: the entry is current, and nobody writes to it.
        WrId(unsafe { (*self.cq.as_ptr()).wr_id })
    }

    #[inline]
    fn status(self) -> WcStatus {
        // SAFETY: as above.
        WcStatus(unsafe { (*self.cq.as_ptr()).status })
    }
}

impl<'poll, F: FieldSet> CompletionInPlace<'poll, F> {
    /// # Safety
    /// An entry of the queue is current during `'poll`, and the queue was made with the fields `F`.
    #[inline]
    pub(crate) unsafe fn new(cq: NonNull<ibv_cq_ex>) -> Self {
        Self {
            shown: InPlace {
                cq,
                poll: PhantomData,
            },
            fields: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn shown(&self) -> InPlace<'poll> {
        self.shown
    }

    fn cq(&self) -> *mut ibv_cq_ex {
        self.shown.cq.as_ptr()
    }

    /// How the request ended.
    pub fn status(&self) -> WcStatus {
        self.shown.status()
    }

    /// Whether it did what was asked.
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// What kind of request it was; valid for a success only.
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.shown.opcode())
    }

    /// Whether it was a send (or any request of the send queue) or a receive; valid for failures
    /// too.
    pub fn direction(&self) -> Direction {
        self.shown.wr_id().direction()
    }

    /// How many bytes were received; 0 for sends and failures.
    pub fn byte_len(&self) -> usize {
        if self.shown.received() {
            self.shown.byte_len() as usize
        } else {
            0
        }
    }

    /// The immediate data that came with the message, in host order.
    pub fn imm_data(&self) -> Option<u32> {
        self.shown.imm_data()
    }

    /// The number of the queue pair, as the device gave it. Numbers are reused;
    /// [`queue`](Self::queue) is not.
    pub fn qp_num(&self) -> Qpn {
        // SAFETY: the entry is current; the field was asked for when the queue was made.
        Qpn(unsafe { ibv_wc_read_qp_num(self.cq()) })
    }

    /// Which queue pair of this process it belongs to: what to look it up by when many share a
    /// completion queue.
    pub fn queue(&self) -> QueueId {
        self.shown.wr_id().queue()
    }

    /// Where a received datagram came from; valid for a successful receive of a datagram queue pair
    /// only.
    pub fn source(&self) -> UdSource {
        let cq = self.cq();
        // SAFETY: as above.
        unsafe {
            UdSource {
                qpn: Qpn(ibv_wc_read_src_qp(cq)),
                slid: Lid(narrow_slid(ibv_wc_read_slid(cq))),
                sl: ibv_wc_read_sl(cq),
                dlid_path_bits: ibv_wc_read_dlid_path_bits(cq),
                has_grh: self.shown.has_grh(),
            }
        }
    }

    /// The vendor's error code, for a failure.
    pub fn vendor_err(&self) -> u32 {
        self.shown.vendor_err()
    }
}

impl<W: Field, V: Field, T: Field> CompletionInPlace<'_, CqFields<Enabled, W, V, T>> {
    /// As [`CompletionEx::timestamp`](crate::cq_ex::CompletionEx::timestamp).
    pub fn timestamp(&self) -> u64 {
        // SAFETY: the entry is current; the field was asked for, as the type says.
        unsafe { ibv_wc_read_completion_ts(self.cq()) }
    }
}

impl<T: Field, V: Field, F: Field> CompletionInPlace<'_, CqFields<T, Enabled, V, F>> {
    /// When the request completed, since the epoch.
    pub fn wallclock(&self) -> Duration {
        // SAFETY: as above.
        Duration::from_nanos(unsafe { ibv_wc_read_completion_wallclock_ns(self.cq()) })
    }
}

impl<T: Field, W: Field, F: Field> CompletionInPlace<'_, CqFields<T, W, Enabled, F>> {
    /// The VLAN tag of the received packet; valid for a successful receive.
    pub fn cvlan(&self) -> u16 {
        // SAFETY: as above.
        unsafe { ibv_wc_read_cvlan(self.cq()) }
    }
}

impl<T: Field, W: Field, V: Field> CompletionInPlace<'_, CqFields<T, W, V, Enabled>> {
    /// The tag of the flow rule that the received packet matched; valid for a successful receive.
    pub fn flow_tag(&self) -> u32 {
        // SAFETY: as above.
        unsafe { ibv_wc_read_flow_tag(self.cq()) }
    }
}

impl<F: FieldSet> fmt::Debug for CompletionInPlace<'_, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionInPlace")
            .field("status", &self.status())
            .field("direction", &self.direction())
            .field("queue", &self.queue())
            .finish_non_exhaustive()
    }
}
