//! Registration of a driver with tokio, and awaiting.

use std::any::Any;
use std::future::poll_fn;
use std::sync::{Arc, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Instant;

use ibverbs::Result;

use crate::Message;
use crate::driver::{Driver, Waiting};
use crate::polling::Polling;
use crate::shared::Shared;
use crate::state::{Side, State};
use rdmacm::internal::{Descriptor, Readable};

/// The descriptor of a driver, registered with tokio. All messengers of the driver share it.
#[derive(Debug)]
pub(crate) struct Reactor {
    readable: Readable,
    /// Wakes one task that waits, whichever it is.
    waker: Waker,
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

    pub(super) async fn send(&self, shared: &Shared, message: &[u8]) -> Result<()> {
        self.wait(shared, Side::Send, |state| state.try_send(message))
            .await?;
        self.wait(shared, Side::Send, State::try_finish_send).await
    }

    pub(super) async fn recv(&self, shared: &Shared) -> Result<Option<Message>> {
        let received = self.wait(shared, Side::Recv, State::try_recv).await?;
        Ok(received.into_message(&shared.endpoint))
    }
}
