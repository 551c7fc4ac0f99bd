//! Awaiting completions with tokio.

#![allow(unsafe_code)]

use std::fmt;
use std::future::poll_fn;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::task::{Context as TaskContext, Poll, ready};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::channel::CompletionChannel;
use super::completions::Completions;
use super::options::CqOptions;
use super::queue::CompletionQueue;
use crate::device::Context;
use crate::error::{Errno, Error, ErrorKind, Result, call_failed};

/// Name of the call in errors of the runtime.
const CALL: &str = "epoll_ctl";

/// A [`CompletionQueue`] that can be awaited. It has a channel of its own, registered with a tokio
/// runtime.
///
/// It dereferences to a [`CompletionQueue`], so it is accepted wherever a reference to one is.
///
/// # Example
/// ```no_run
/// # async fn f(context: ibverbs::Context, pd: ibverbs::ProtectionDomain) -> Result<(), ibverbs::Error> {
/// use ibverbs::{AsyncCompletionQueue, CqOptions, QpOptions, Rc};
/// let mut cq = AsyncCompletionQueue::new(&context, CqOptions::default())?;
/// let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// // connect and post requests, then:
/// for completion in cq.completions().await? {
///     qp.retire(completion)?.check()?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_get_cq_event")]
pub struct AsyncCompletionQueue {
    queue: CompletionQueue,
    channel: AsyncFd<Descriptor>,
    /// `true` if the queue was armed and no event was read since.
    armed: bool,
}

/// Keeps the descriptor open while it is registered.
struct Descriptor(CompletionChannel);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsyncCompletionQueue {
    /// Creates a completion queue with a channel of its own. [`CqOptions::channel`] is ignored.
    ///
    /// # Errors
    /// Those of [`Context::create_cq`] and [`Context::create_comp_channel`], and
    /// [`ErrorKind::InvalidInput`] outside a tokio runtime.
    ///
    /// # Panics
    /// Panics in a tokio runtime that was built without `enable_io`.
    #[doc(alias = "ibv_create_cq")]
    pub fn new(context: &Context, options: CqOptions<'_>) -> Result<Self> {
        if Handle::try_current().is_err() {
            let what = format!(
                "completion channel of {}: created outside a tokio runtime",
                context.device_name()
            );
            return Err(Error::new(ErrorKind::InvalidInput, CALL, what)
                .with_help("create it in a tokio runtime built with `enable_io`"));
        }
        let channel = context.create_comp_channel()?;
        let queue = context.create_cq(options.channel(&channel))?;
        // SAFETY: the `AsyncFd` owns the channel, which keeps its descriptor open and unchanged.
        let channel =
            unsafe { AsyncFd::register_with_interest(Descriptor(channel), Interest::READABLE) };
        let channel = channel.map_err(|error| failed(&error.into()))?;
        Ok(Self {
            queue,
            channel,
            armed: false,
        })
    }

    /// Waits until requests have completed and returns their completions, at least one.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time. No completion is lost, and requests stay in flight
    /// with their buffers.
    ///
    /// # Errors
    /// Those of [`CompletionQueue::poll`] and [`CompletionQueue::arm`]. It also fails if waiting
    /// for the channel fails. An error is not a completion: requests in flight stay in flight.
    #[doc(alias = "ibv_get_cq_event")]
    pub async fn completions(&mut self) -> Result<Completions<'_>> {
        poll_fn(|cx| self.poll_ready(cx)).await?;
        self.queue.poll()
    }

    /// Like [`completions`](Self::completions), for a type that is polled itself, such as an
    /// `AsyncRead`. If no request has completed, the task is woken when one does.
    ///
    /// # Errors
    /// Same as [`completions`](Self::completions).
    #[doc(alias = "ibv_get_cq_event")]
    pub fn poll_completions(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Completions<'_>>> {
        ready!(self.poll_ready(cx))?;
        Poll::Ready(self.queue.poll())
    }

    /// Is ready when requests have completed.
    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<()>> {
        while !self.has_completions()? {
            if !self.armed {
                self.queue.arm(false)?;
                self.armed = true;
                continue; // entries added before the queue was armed cause no event
            }
            let ready = ready!(self.channel.poll_read_ready(cx));
            let mut ready = ready.map_err(|error| failed(&error))?;
            match ready.get_inner().0.try_next()? {
                Some(_) => self.armed = false,
                None => ready.clear_ready(),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Returns completions without waiting. See [`CompletionQueue::poll`].
    ///
    /// # Errors
    /// Those of [`CompletionQueue::poll`].
    #[doc(alias = "ibv_poll_cq")]
    pub fn poll(&mut self) -> Result<Completions<'_>> {
        self.queue.poll()
    }

    /// Moderates completion events. See [`CompletionQueue::moderate`].
    ///
    /// # Errors
    /// Those of [`CompletionQueue::moderate`].
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<()> {
        self.queue.moderate(count, period)
    }

    /// Changes the depth of the queue. See [`CompletionQueue::resize`].
    ///
    /// # Errors
    /// Those of [`CompletionQueue::resize`].
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        self.queue.resize(depth)
    }

    /// Returns `true` if the next poll returns completions. The iterator that is dropped here loses
    /// none, because the next poll returns them first.
    fn has_completions(&mut self) -> Result<bool> {
        Ok(!self.queue.poll()?.is_empty())
    }
}

fn failed(error: &std::io::Error) -> Error {
    match error.raw_os_error() {
        Some(errno) => call_failed(CALL, Errno(errno), "completion channel"),
        None => Error::new(ErrorKind::Os, CALL, format!("completion channel: {error}")),
    }
}

impl Deref for AsyncCompletionQueue {
    type Target = CompletionQueue;

    fn deref(&self) -> &CompletionQueue {
        &self.queue
    }
}

impl fmt::Debug for AsyncCompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncCompletionQueue")
            .field("queue", &self.queue)
            .field("armed", &self.armed)
            .finish_non_exhaustive()
    }
}
