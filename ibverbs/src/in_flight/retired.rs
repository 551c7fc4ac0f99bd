//! The results of retiring a completion and of destroying a queue pair.

use std::fmt;
use std::sync::Arc;

use rdma_sys::{IBV_WC_WITH_INV, ibv_wc};

use super::request::{InFlight, Owned, Request};
use crate::cq::{WcFields, WcOpcode, WcStatus};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{Direction, QueueId};
use crate::mr::{Buf, BufList};
use crate::mw::Bound;

/// A completed request: its status, and the buffer it was posted with. A failed request returns its
/// buffer too, unless the device may still access it
/// ([strict rules](crate::CompletionQueue#devices-with-strict-rules)).
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
///     retired.check()?;
///     println!("request {}: {} bytes", retired.tag(), retired.received_len());
///     Ok(retired.into_buf())
/// }
/// ```
#[doc(alias = "ibv_poll_cq")]
pub struct Retired {
    owned: Owned,
    tag: u64,
    wc: ibv_wc,
}

impl Retired {
    /// Creates the result for a request that was removed from its table.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn new(request: Request, wc: &ibv_wc) -> Self {
        Self {
            owned: request.owned,
            tag: request.tag,
            wc: *wc,
        }
    }

    /// Creates the result for a receive that was removed from its table.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub(crate) fn received(request: Request, wc: &ibv_wc) -> Self {
        // Copied first: setting the length would make the compiler read the status again.
        let wc = *wc;
        let request = if wc.status().is_success() {
            request.received(wc.byte_len as usize)
        } else {
            request
        };
        Self {
            owned: request.owned,
            tag: request.tag,
            wc,
        }
    }

    /// Returns the window that the request invalidated, if it succeeded.
    pub(crate) fn into_invalidated(mut self) -> Option<Arc<Bound>> {
        match self.owned.take() {
            Some(InFlight::Invalidate(bound)) if self.wc.status().is_success() => Some(bound),
            _ => None,
        }
    }

    /// Returns the local remote key that the peer's message invalidated
    /// ([`wr::send_with_inv`](crate::wr::send_with_inv)).
    pub fn invalidated_rkey(&self) -> Option<u32> {
        self.imm_or_invalidated(IBV_WC_WITH_INV)
    }

    pub(crate) fn imm_or_invalidated(&self, flags: u32) -> Option<u32> {
        self.wc.imm_or_invalidated(flags)
    }

    /// Returns the number that the request was posted with.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns the status of the request.
    pub fn status(&self) -> WcStatus {
        self.wc.status()
    }

    /// Returns `true` if the request succeeded.
    pub fn is_success(&self) -> bool {
        self.status().is_success()
    }

    /// Returns the opcode. It is valid for a success only.
    pub fn opcode(&self) -> WcOpcode {
        WcOpcode(self.wc.opcode)
    }

    /// Returns the queue to which the request was posted.
    pub fn direction(&self) -> Direction {
        self.wc.wr_id().direction()
    }

    /// Returns the number of bytes received, 0 for a send or a failure.
    pub fn received_len(&self) -> usize {
        self.wc.received_len()
    }

    /// Returns the immediate data that arrived with the message, in host byte order.
    pub fn imm_data(&self) -> Option<u32> {
        self.wc.imm_data()
    }

    /// Returns the vendor's error code of a failure.
    pub fn vendor_err(&self) -> u32 {
        self.wc.vendor_err
    }

    /// Returns `Ok` for a success.
    ///
    /// # Errors
    /// [`ErrorKind::Completion`] with the status and its usual cause.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn check(&self) -> Result<()> {
        if self.is_success() {
            Ok(())
        } else {
            Err(completion_error(
                self.direction(),
                self.status(),
                self.vendor_err(),
            ))
        }
    }

    /// Returns the buffer. After a receive, its length is that of the received message.
    ///
    /// Returns `None` if the request was posted without a buffer or with a list of buffers.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "measured: benches/README.md")]
    pub fn into_buf(mut self) -> Option<Buf> {
        self.owned.take_buf()
    }

    /// Removes the buffer, so that the other results can still be used. After a receive, its length
    /// is that of the received message.
    ///
    /// Returns `None` if it was removed before, or if the request was posted without a buffer or
    /// with a list of buffers, which [`into_list`](Self::into_list) then returns.
    pub fn take_buf(&mut self) -> Option<Buf> {
        self.owned.take_buf()
    }

    /// Returns the list of buffers. After a receive, its total length is that of the received
    /// message.
    ///
    /// Returns `None` if the request was not posted with a list.
    pub fn into_list(mut self) -> Option<BufList> {
        match self.owned.take() {
            Some(InFlight::List(list)) => Some(list),
            _ => None,
        }
    }
}

#[cold]
#[inline(never)]
fn completion_error(direction: Direction, status: WcStatus, vendor_err: u32) -> Error {
    let request = match direction {
        Direction::Send => "send",
        Direction::Recv => "receive",
    };
    let what = format!(
        "{request} failed: {status} (status {}, vendor {vendor_err:#x})",
        status.0
    );
    let error = Error::new(ErrorKind::Completion, "completion", what);
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
            .field("received_len", &self.received_len())
            .finish_non_exhaustive()
    }
}

/// A completion that matches no request in flight on this queue pair. It belongs to another queue
/// pair or to a destroyed one, or its request was retired by a later completion.
///
/// If queue pairs share a completion queue, find the right one with
/// [`Completion::queue`](crate::Completion::queue).
///
/// # Example
/// Completions of a destroyed queue pair are skipped:
/// ```no_run
/// use ibverbs::{CompletionQueue, ForeignCompletion, QueuePair, Rc};
/// # fn f(cq: &mut CompletionQueue, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
/// for completion in cq.poll()? {
///     match qp.retire(completion) {
///         Ok(retired) => retired.check()?,
///         Err(ForeignCompletion { queue }) => println!("skipped a completion of {queue:?}"),
///     }
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the completion is not of a request in flight on this queue pair")]
pub struct ForeignCompletion {
    /// The queue that the completion belongs to.
    pub queue: QueueId,
}

/// Writes the message, for a `main` that returns the error.
impl std::fmt::Debug for ForeignCompletion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl From<ForeignCompletion> for Error {
    fn from(foreign: ForeignCompletion) -> Self {
        Error::new(ErrorKind::Mismatch, "retire", foreign.to_string()).with_help(
            "retire it on the queue pair named by `Completion::queue`; drop it if that one was destroyed",
        )
    }
}

/// The buffers of requests that were still in flight when their queue pair was destroyed, with the
/// tags of the requests.
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
#[doc(alias = "ibv_destroy_qp")]
#[derive(Debug, Default)]
pub struct Reclaimed {
    /// Buffers of the send queue, oldest first.
    pub sends: Vec<(u64, Buf)>,
    /// Buffers of the receive queue, oldest first.
    pub recvs: Vec<(u64, Buf)>,
}

impl Reclaimed {
    pub(crate) fn new(sends: Vec<Request>, recvs: Vec<Request>) -> Self {
        let with_tags = |requests: Vec<Request>| {
            let with_tag = |request: Request| {
                let tag = request.tag;
                request.into_bufs().into_iter().map(move |buf| (tag, buf))
            };
            requests.into_iter().flat_map(with_tag).collect()
        };
        Self {
            sends: with_tags(sends),
            recvs: with_tags(recvs),
        }
    }
}
