//! A messenger as its halves see it: its endpoint, its driver, and the ways to wait.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ibverbs::Result;

use super::driver::{Driver, thread_waker};
use super::endpoint::Endpoint;
use super::state::{Side, State};
use rdmacm::internal::{Deadline, PollWindow};

/// An endpoint and its driver.
pub(crate) struct Shared {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) driver: Arc<Driver>,
    /// Polling times of the waits.
    windows: [PollWindow; Side::COUNT],
}

impl Shared {
    pub(crate) fn new(endpoint: Arc<Endpoint>, driver: Arc<Driver>, poll_time: Duration) -> Self {
        Self {
            endpoint,
            driver,
            windows: std::array::from_fn(|_| PollWindow::new(poll_time)),
        }
    }

    /// Returns the polling times of one side.
    pub(crate) fn window(&self, side: Side) -> &PollWindow {
        &self.windows[side as usize]
    }

    /// Calls a function on the state.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        self.endpoint.with(f)
    }

    /// Calls `f` until it returns a value, first with the present state, then after processing
    /// completions. Does not arm the completion queue.
    pub(crate) fn attempt<T>(
        &self,
        f: &mut impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(value) = self.with(&mut *f)? {
            return Ok(Some(value));
        }
        self.driver.poll()?;
        self.with(f)
    }

    /// Like [`attempt`](Self::attempt). If it returns `None`, the driver's descriptor becomes
    /// readable when another attempt can succeed.
    pub(crate) fn attempt_armed<T>(
        &self,
        f: &mut impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        if let Some(value) = self.attempt(f)? {
            return Ok(Some(value));
        }
        self.driver.prepare_wait(&self.endpoint)?;
        self.with(f)
    }

    /// Calls `f` until it returns a value, at most until the deadline. The thread sleeps between
    /// calls.
    pub(crate) fn block<T>(
        &self,
        side: Side,
        timeout: impl Into<Option<Duration>>,
        mut f: impl FnMut(&mut State) -> Result<Option<T>>,
    ) -> Result<T> {
        if let Some(value) = self.attempt(&mut f)? {
            return Ok(value);
        }
        let timeout = timeout.into();
        let window = self.window(side);
        if timeout != Some(Duration::ZERO) {
            let polled = window.poll(|| {
                self.driver.poll()?;
                self.with(&mut f)
            });
            if let Some(value) = polled? {
                return Ok(value);
            }
        }
        let began = Instant::now();
        let deadline = Deadline::after(timeout);
        let waker = thread_waker();
        let waiting = self.driver.enter(&waker, true);
        loop {
            self.with(|state| state.set_waker(side, &waker));
            if let Some(value) = self.attempt_armed(&mut f)? {
                window.missed(began.elapsed());
                return Ok(value);
            }
            if deadline.has_passed() {
                return Err(self.with(State::timed_out));
            }
            let attempt = || self.attempt_armed(&mut f);
            if let Some(value) = waiting.sleep(&self.endpoint, deadline, attempt)? {
                window.missed(began.elapsed());
                return Ok(value);
            }
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

/// The handle of a messenger or of its halves. Dropping the last one ends the connection.
#[derive(Debug)]
pub(crate) struct Owner(pub(crate) Shared);

impl Drop for Owner {
    fn drop(&mut self) {
        // No further message uses a receive of the group. The connection ends anyway.
        self.0.with(State::stop_receiving);
        self.0.driver.remove(self.0.endpoint.id);
        self.0.with(State::close);
    }
}
