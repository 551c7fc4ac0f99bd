//! Awaiting completions on tokio.

#![allow(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, RawFd};
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

/// A completion queue that can be awaited: a [`CompletionQueue`] with a channel of its own, in a
/// runtime of tokio.
///
/// It goes wherever a reference to a [`CompletionQueue`] does.
///
/// # Example
/// ```no_run
/// # async fn f(context: ibverbs::Context, pd: ibverbs::ProtectionDomain) -> Result<(), ibverbs::Error> {
/// use ibverbs::{AsyncCompletionQueue, CqOptions, QpOptions, Rc};
/// let mut cq = AsyncCompletionQueue::new(&context, CqOptions::default())?;
/// let mut qp = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
/// // connect and post, and then
/// for completion in cq.completions().await? {
///     qp.retire(completion)?.ok()?;
/// }
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_get_cq_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
pub struct AsyncCompletionQueue {
    queue: CompletionQueue,
    channel: AsyncFd<Descriptor>,
    /// Whether the channel will report: it was armed, and no event was taken since.
    armed: bool,
}

struct Descriptor(CompletionChannel);

impl AsRawFd for Descriptor {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

impl AsyncCompletionQueue {
    /// Creates a completion queue with a channel of its own; that of `options` is not used.
    ///
    /// # Errors
    /// As [`Context::create_cq`]; [`ErrorKind::InvalidInput`] outside a runtime of tokio.
    ///
    /// # Panics
    /// In a runtime that was built without `enable_io`, as every descriptor that tokio waits for.
    ///
    /// # References
    /// [`ibv_create_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_create_cq.3.html)
    pub fn new(context: &Context, options: CqOptions<'_>) -> Result<Self> {
        if Handle::try_current().is_err() {
            let what = format!(
                "a completion queue of {} to be awaited",
                context.device_name()
            );
            return Err(Error::new(ErrorKind::InvalidInput, "epoll", what)
                .with_help("call it within a runtime of tokio"));
        }
        let channel = context.create_comp_channel()?;
        let queue = context.create_cq(CqOptions {
            channel: Some(&channel),
            ..options
        })?;
        // SAFETY: the channel keeps its descriptor open, and the same, as long as it lives: as long
        // as the `AsyncFd`, which owns it.
        let channel =
            unsafe { AsyncFd::register_with_interest(Descriptor(channel), Interest::READABLE) };
        let channel = channel.map_err(|error| failed(&error.into()))?;
        Ok(Self {
            queue,
            channel,
            armed: false,
        })
    }

    /// Waits until something has completed, and takes it: at least one.
    ///
    /// # Cancel safety
    /// The future can be dropped at any time: no completion is lost, and no request is ended. What
    /// was posted stays in flight, and its buffers with it.
    ///
    /// # Errors
    /// An error is not a completion: requests in flight stay in flight.
    ///
    /// # References
    /// [`ibv_get_cq_event(3)`](https://man7.org/linux/man-pages/man3/ibv_get_cq_event.3.html)
    pub async fn completions(&mut self) -> Result<Completions<'_>> {
        while !self.has_some()? {
            if !self.armed {
                self.queue.arm(false)?;
                self.armed = true;
                continue; // what came before arming gives no event
            }
            let mut ready = self
                .channel
                .readable()
                .await
                .map_err(|error| failed(&error))?;
            match ready.get_inner().0.try_get()? {
                Some(_) => self.armed = false,
                None => ready.clear_ready(),
            }
        }
        self.queue.poll()
    }

    /// Takes what has completed, without waiting.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`].
    ///
    /// # References
    /// [`ibv_poll_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_poll_cq.3.html)
    pub fn poll(&mut self) -> Result<Completions<'_>> {
        self.queue.poll()
    }

    /// Lets it wake for several completions at once: as [`CompletionQueue::moderate`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_modify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<()> {
        self.queue.moderate(count, period)
    }

    /// Makes it deeper, or less deep: as [`CompletionQueue::resize`].
    ///
    /// # Errors
    /// As there.
    ///
    /// # References
    /// [`ibv_resize_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_resize_cq.3.html)
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        self.queue.resize(depth)
    }

    /// What is polled and not taken comes first at the next poll.
    fn has_some(&mut self) -> Result<bool> {
        Ok(!self.queue.poll()?.is_empty())
    }
}

fn failed(error: &std::io::Error) -> Error {
    const WHAT: &str = "the completion channel in the runtime";
    match error.raw_os_error() {
        Some(errno) => call_failed("epoll", Errno(errno), WHAT),
        None => Error::new(ErrorKind::Os, "epoll", format!("{WHAT}: {error}")),
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
