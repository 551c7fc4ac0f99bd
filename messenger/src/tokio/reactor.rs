//! Registration of a driver with tokio, and awaiting.

use std::any::Any;
use std::future::poll_fn;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::Result;
use tokio::runtime::Handle;

use crate::driver::{Driver, Waiting};
use crate::shared::Shared;
use crate::state::{Side, State};
use crate::{Message, SendBuffer};
use rdmacm::internal::{Descriptor, Polling, Readable};

/// The descriptor of a driver, registered with tokio. All messengers of the driver share it.
#[derive(Debug)]
pub(crate) struct Reactor {
    readable: Readable,
    /// Wakes one task that waits, whichever it is.
    waker: Waker,
    /// The runtime with which the descriptor is registered.
    runtime: Handle,
}

/// A wait of a task.
#[derive(Debug, Default)]
pub(super) enum TaskWait {
    #[default]
    New,
    /// The task is woken at once, to poll again.
    Polling(Polling),
    /// The task is woken by the driver since this time.
    Asleep(Waiting, Instant),
}

struct DriverWaker(Weak<Driver>);

impl Wake for DriverWaker {
    fn wake(self: Arc<Self>) {
        if let Some(driver) = self.0.upgrade() {
            driver.wake_one();
        }
    }
}

impl Reactor {
    /// Returns the registration of a driver. The first call registers it.
    pub(super) fn of(driver: &Arc<Driver>) -> Result<Arc<Self>> {
        let mut registered = driver
            .reactor
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let existing = registered.as_ref().and_then(Weak::upgrade);
        if let Some(Ok(reactor)) = existing.map(Arc::downcast::<Self>) {
            return Ok(reactor);
        }
        let reactor = Arc::new(Self {
            readable: Readable::new(Arc::clone(driver) as Descriptor)?,
            waker: Arc::new(DriverWaker(Arc::downgrade(driver))).into(),
            runtime: Handle::current(),
        });
        let any: Arc<dyn Any + Send + Sync> = reactor.clone();
        *registered = Some(Arc::downgrade(&any));
        Ok(reactor)
    }

    /// Calls `step` until it returns a value.
    pub(super) async fn wait<T>(
        &self,
        shared: &Shared,
        side: Side,
        mut step: impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<T> {
        let mut wait = TaskWait::default();
        poll_fn(|context| self.poll(shared, side, context, &mut wait, true, &mut step)).await
    }

    /// Calls `step`. If it returns no value, the task is woken when it may return one.
    /// `is_reliable` is `true` if `wait` is dropped when the task stops waiting.
    pub(super) fn poll<T>(
        &self,
        shared: &Shared,
        side: Side,
        context: &mut Context<'_>,
        wait: &mut TaskWait,
        is_reliable: bool,
        step: &mut impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Poll<Result<T>> {
        let result = self.poll_registered(shared, side, context, wait, is_reliable, step);
        if result.is_ready() {
            let window = shared.window(side);
            match std::mem::take(wait) {
                TaskWait::New => {}
                TaskWait::Polling(_) => window.helped(),
                TaskWait::Asleep(_, since) => window.missed(since.elapsed()),
            }
        }
        result
    }

    fn poll_registered<T>(
        &self,
        shared: &Shared,
        side: Side,
        context: &mut Context<'_>,
        wait: &mut TaskWait,
        is_reliable: bool,
        step: &mut impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Poll<Result<T>> {
        let waker = context.waker();
        loop {
            if let Some(value) = shared.attempt(step)? {
                return Poll::Ready(Ok(value));
            }
            if let TaskWait::New = wait {
                *wait = TaskWait::Polling(shared.window(side).begin());
            }
            let goes_on = match wait {
                TaskWait::Polling(polling) => polling.goes_on(),
                _ => false,
            };
            if goes_on {
                // See `PollWindow::poll`. The runtime runs its other tasks between polls.
                thread::yield_now();
                if let Some(value) = shared.attempt(step)? {
                    return Poll::Ready(Ok(value));
                }
                waker.wake_by_ref();
                return Poll::Pending;
            }
            if let TaskWait::Asleep(waiting, _) = wait {
                waiting.set_waker(waker);
            } else {
                let waiting = shared.driver.enter(waker, is_reliable);
                *wait = TaskWait::Asleep(waiting, Instant::now());
            }
            shared.with(|state| state.set_waker(side, waker));
            if let Some(value) = shared.attempt_armed(step)? {
                return Poll::Ready(Ok(value));
            }
            // The driver's waker outlives this task: the next event wakes a task that waits then.
            let mut driver_context = Context::from_waker(&self.waker);
            if !self.readable.poll_clear(&mut driver_context)? {
                return Poll::Pending;
            }
        }
    }

    /// Sends a message. The future is ready in the call of `poll` that posts the first bytes, so a
    /// dropped future has sent nothing.
    pub(super) async fn send(self: &Arc<Self>, shared: &Shared, message: &[u8]) -> Result<()> {
        self.wait(shared, Side::Send, |state| state.try_send(message))
            .await?;
        self.post_rest(shared);
        Ok(())
    }

    /// Awaits until the next message can be sent.
    pub(super) async fn reserve<'a>(
        self: &'a Arc<Self>,
        shared: &'a Shared,
    ) -> Result<SendPermit<'a>> {
        self.wait(shared, Side::Send, State::try_reserve).await?;
        Ok(SendPermit {
            shared,
            reactor: self,
        })
    }

    /// Awaits a buffer for a message.
    pub(super) async fn buffer(self: &Arc<Self>, shared: &Shared) -> Result<SendBuffer> {
        let buf = self.wait(shared, Side::Send, State::try_buffer).await?;
        Ok(SendBuffer::new(buf, &shared.driver))
    }

    /// Sends a message in a buffer. A dropped future has sent nothing.
    pub(super) async fn send_buffer(
        self: &Arc<Self>,
        shared: &Shared,
        buffer: SendBuffer,
    ) -> Result<()> {
        let (unsent, buf) = buffer.into_parts(&shared.driver)?;
        let mut buf = Some(buf);
        self.wait(shared, Side::Send, |state| state.try_send_buffer(&mut buf))
            .await?;
        unsent.disarm();
        Ok(())
    }

    /// Starts a task that posts the rest of a message, because the caller may not call the
    /// messenger again.
    fn post_rest(self: &Arc<Self>, shared: &Shared) {
        if !shared.with(State::needs_rest_task) {
            return;
        }
        // The task must not keep the connection open, as an `Owner` does. It does not poll before
        // it sleeps, because the peer's application may take its time.
        let endpoint = Arc::clone(&shared.endpoint);
        let shared = Shared::new(endpoint, Arc::clone(&shared.driver), Duration::ZERO);
        let reactor = Arc::clone(self);
        self.runtime.spawn(async move {
            let step = |state: &mut State| Ok(state.try_finish_rest());
            if reactor.wait(&shared, Side::Rest, step).await.is_err() {
                // The completion queue or the runtime has failed, and so do the calls of the
                // application.
                shared.with(State::stop_rest_task);
            }
        });
    }

    pub(super) async fn recv(&self, shared: &Shared) -> Result<Option<Message>> {
        let received = self.wait(shared, Side::Recv, State::try_recv).await?;
        Ok(received.into_message(&shared.endpoint))
    }
}

/// Permission to send one message without waiting: see
/// [`AsyncMessenger::reserve`](crate::AsyncMessenger::reserve).
///
/// # Example
/// The loop takes a message from the application only when it can be sent:
/// ```no_run
/// # use messenger::AsyncMessenger;
/// # use tokio::sync::mpsc::Receiver;
/// # async fn f(mut messenger: AsyncMessenger, mut queue: Receiver<Vec<u8>>) -> ibverbs::Result<()> {
/// loop {
///     let permit = messenger.reserve().await?;
///     match queue.recv().await {
///         Some(message) => permit.send(&message)?,
///         None => break,
///     }
/// }
/// messenger.shutdown().await
/// # }
/// ```
/// There is one permit at a time, because it borrows the messenger:
/// ```compile_fail,E0499
/// # use messenger::AsyncMessenger;
/// # async fn f(mut messenger: AsyncMessenger) -> ibverbs::Result<()> {
/// let first = messenger.reserve().await?;
/// let second = messenger.reserve().await?;
/// first.send(b"first")?;
/// second.send(b"second")
/// # }
/// ```
#[derive(Debug)]
#[must_use = "a permit sends nothing until `send` is called"]
pub struct SendPermit<'a> {
    shared: &'a Shared,
    reactor: &'a Arc<Reactor>,
}

impl SendPermit<'_> {
    /// Sends a copy of `message`, without waiting. A message that is longer than the buffers is
    /// kept, and sent while the peer receives it.
    ///
    /// # Errors
    /// Same as [`Messenger::send`](crate::Messenger::send), except for the timeout.
    pub fn send(self, message: &[u8]) -> Result<()> {
        self.shared.with(|state| state.send_reserved(message))?;
        self.reactor.post_rest(self.shared);
        Ok(())
    }
}
