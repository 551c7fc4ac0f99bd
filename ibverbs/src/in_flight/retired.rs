//! What comes back when a completion is retired.

use std::fmt;
use std::sync::Arc;

use rdma_sys::{IBV_WC_WITH_INV, ibv_wc};

use super::kept::InFlight;
use super::slot::Entry;
use crate::cq::{WcFields, WcOpcode, WcStatus};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Direction, QueueId};
use crate::mr::{Buf, BufList};
use crate::mw::Bound;

/// A finished request: how it ended, and the buffer it was posted with.
///
/// A failed request gives its buffer back too.
///
/// # Example
/// ```no_run
/// # use ibverbs::{Buf, Completion, Direction, Error, QueuePair, Rc};
/// fn next_message(
///     completion: Completion<'_>,
///     qp: &mut QueuePair<Rc>,
/// ) -> Result<Option<Buf>, Error> {
///     let retired = qp.retire(completion)?;
///     if retired.direction() == Direction::Send {
///         return Ok(None);
///     }
///     retired.ok()?; // how it failed, in words
///     println!("request {}: {} bytes", retired.tag(), retired.byte_len());
///     Ok(retired.into_buf())
/// }
/// ```
///
/// # References
/// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
pub struct Retired {
    payload: InFlight,
    tag: u64,
    wc: ibv_wc,
}

impl Retired {
    #[inline]
    pub(crate) fn new(wc: &ibv_wc, Entry { payload, tag }: Entry) -> Self {
        Self {
            payload,
            tag,
            wc: *wc,
        }
    }

    /// The window that was being invalidated, if the request succeeded.
    pub(crate) fn into_invalidated(self) -> Option<Arc<Bound>> {
        if self.is_success() {
            self.payload.into_invalidated()
        } else {
            None
        }
    }

    /// The key of this side's that the message of the peer invalidated
    /// ([`wr::send_with_inv`](crate::wr::send_with_inv)).
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.imm_or_invalidated(IBV_WC_WITH_INV)
    }

    pub(crate) fn imm_or_invalidated(&self, flags: u32) -> Option<u32> {
        self.wc.imm_or_invalidated(flags)
    }

    /// The number that the request was posted with.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// How it ended.
    pub fn status(&self) -> WcStatus {
        self.wc.status()
    }

    /// Whether it did what was asked.
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// What kind of request it was; valid for a success only.
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.wc.opcode)
    }

    /// Whether it was posted to the send or to the receive queue.
    pub fn direction(&self) -> Direction {
        self.wc.wr_id().direction()
    }

    /// How many bytes were received; 0 for sends and failures.
    pub fn byte_len(&self) -> usize {
        self.wc.received_len()
    }

    /// The immediate data that came with the message.
    pub fn imm_data(&self) -> Option<u32> {
        self.wc.imm_data()
    }

    /// The vendor's error code, for a failure.
    pub fn vendor_err(&self) -> u32 {
        self.wc.vendor_err
    }

    /// `Ok` for a success.
    ///
    /// # Errors
    /// [`ErrorKind::Completion`] with the status in words and its usual cause.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn ok(&self) -> Result<()> {
        if self.is_success() {
            Ok(())
        } else {
            Err(failed(self.direction(), self.status(), self.vendor_err()))
        }
    }

    /// The buffer; after a receive it shows what was received. `None` if the request was posted
    /// without one, or with a list.
    #[inline]
    pub fn into_buf(self) -> Option<Buf> {
        self.payload.into_buf().ok()
    }

    /// The list of buffers, if it was posted with one; after a receive it shows what was received.
    pub fn into_list(self) -> Option<BufList> {
        let len = self.wc.is_received().then(|| self.byte_len());
        let mut list = self.payload.into_list()?;
        if let Some(len) = len {
            list.set_total_len(len);
        }
        Some(list)
    }
}

/// A C function because those do not unwind: so the caller, who has the request, need not be ready
/// to drop it here.
#[cold]
#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "only Rust calls it")]
extern "C" fn failed(direction: Direction, status: WcStatus, vendor_err: u32) -> Error {
    let what = match direction {
        Direction::Send => "send",
        Direction::Recv => "receive",
    };
    let text = format!(
        "{what} failed: {status} (status {}, vendor {vendor_err:#x})",
        status.0
    );
    let error = Error::new(ErrorKind::Completion, "completion", text);
    match status.help(direction) {
        Some(help) => error.with_help(help),
        None => error,
    }
}

impl fmt::Debug for Retired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retired")
            .field("direction", &self.direction())
            .field("status", &self.status())
            .field("tag", &self.tag)
            .field("byte_len", &self.byte_len())
            .finish_non_exhaustive()
    }
}

/// A completion that is none of this queue pair's: of another one, of one that was destroyed, or
/// retired before. It changed nothing.
///
/// Where queue pairs share a completion queue, [`Completion::queue`](crate::Completion::queue) says
/// beforehand whose it is.
///
/// # Example
/// A completion of one that was destroyed is of no interest:
/// ```no_run
/// use ibverbs::{CompletionQueue, ForeignCompletion, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     match qp.retire(completion) {
///         Ok(retired) => retired.ok()?,
///         Err(ForeignCompletion { queue }) => println!("left over of {queue:?}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the completion is not of a request in flight on this queue pair")]
pub struct ForeignCompletion {
    /// Whose it is.
    pub queue: QueueId,
}

impl From<ForeignCompletion> for Error {
    fn from(not_mine: ForeignCompletion) -> Self {
        Error::new(ErrorKind::Mismatch, "retire", not_mine.to_string())
            .with_help("Completion::queue says whose it is; one of a queue pair that was destroyed can be dropped")
    }
}

/// What a destroyed queue pair gives back: the buffers of requests that never completed, with their
/// tags.
///
/// # Example
/// ```no_run
/// use ibverbs::{Buf, QueuePair, Rc, Reclaimed};
/// # fn f(qp: QueuePair<Rc>) -> ibverbs::Result<()> {
/// let Reclaimed { sends, recvs, .. } = qp.destroy()?;
/// let bufs: Vec<Buf> = sends
///     .into_iter()
///     .chain(recvs)
///     .map(|(_tag, buf)| buf)
///     .collect();
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_destroy_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_destroy_qp.3.html)
#[derive(Debug, Default)]
pub struct Reclaimed {
    /// Of the send queue, oldest first.
    pub sends: Vec<(u64, Buf)>,
    /// Of the receive queue.
    pub recvs: Vec<(u64, Buf)>,
}
