//! A channel for one value, whose receiver can stop receiving.

use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Creates a channel. Unlike with the channel of the standard library, the receiver can stop and
/// learn in the same step whether a value was sent ([`Receiver::close`]). The value then belongs to
/// exactly one of the two ends, which decides where it is dropped.
pub(super) fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        state: Mutex::new(State::Empty),
        changed: Condvar::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

#[derive(Debug)]
struct Shared<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<T> {
    Empty,
    Sent(T),
    /// The value was taken, or one of the two ends is gone.
    Closed,
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends one value. Dropping it closes the channel.
#[derive(Debug)]
pub(super) struct Sender<T>(Arc<Shared<T>>);

impl<T> Sender<T> {
    /// Sends the value, or returns it if the receiver has closed the channel.
    pub(super) fn send(self, value: T) -> Result<(), T> {
        let mut state = self.0.state();
        if matches!(*state, State::Closed) {
            return Err(value);
        }
        *state = State::Sent(value);
        Ok(())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if matches!(*state, State::Empty) {
            *state = State::Closed;
        }
        self.0.changed.notify_one();
    }
}

/// Receives one value.
#[derive(Debug)]
pub(super) struct Receiver<T>(Arc<Shared<T>>);

/// The sender was dropped without a value, or the value was received before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Closed;

impl<T> Receiver<T> {
    /// Returns the value if it was sent, or `None` if it is still expected.
    pub(super) fn try_recv(&self) -> Result<Option<T>, Closed> {
        let mut state = self.0.state();
        match mem::replace(&mut *state, State::Closed) {
            State::Empty => {
                *state = State::Empty;
                Ok(None)
            }
            State::Sent(value) => Ok(Some(value)),
            State::Closed => Err(Closed),
        }
    }

    /// Sleeps until [`try_recv`](Self::try_recv) does not return `None`, at most for `timeout`
    /// (forever if `None`).
    pub(super) fn sleep(&self, timeout: Option<Duration>) {
        let is_empty = |state: &mut State<T>| matches!(state, State::Empty);
        let state = self.0.state();
        match timeout {
            Some(timeout) => drop(self.0.changed.wait_timeout_while(state, timeout, is_empty)),
            None => drop(self.0.changed.wait_while(state, is_empty)),
        }
    }

    /// Makes every later [`Sender::send`] fail, and returns the value if it was sent before.
    pub(super) fn close(&self) -> Option<T> {
        match mem::replace(&mut *self.0.state(), State::Closed) {
            State::Sent(value) => Some(value),
            State::Empty | State::Closed => None,
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        drop(self.close());
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_value_is_received_once() {
        let (sender, receiver) = channel();
        assert_eq!(receiver.try_recv(), Ok(None));
        assert_eq!(sender.send(1), Ok(()));
        assert_eq!(receiver.try_recv(), Ok(Some(1)));
        assert_eq!(receiver.try_recv(), Err(Closed));
    }

    #[test]
    fn either_end_gets_the_value_when_the_receiver_closes() {
        let (sender, receiver) = channel();
        assert_eq!(receiver.close(), None);
        assert_eq!(sender.send(1), Err(1));
        let (sender, receiver) = channel();
        assert_eq!(sender.send(2), Ok(()));
        assert_eq!(receiver.close(), Some(2));

        for number in 0..1000 {
            let (sender, receiver) = channel();
            let thread = thread::spawn(move || sender.send(number).err());
            let received = receiver.close();
            let returned = thread.join().expect("no panic");
            assert_eq!(received.xor(returned), Some(number));
        }
    }

    #[test]
    fn the_receiver_wakes_for_a_value_and_for_a_dropped_sender() {
        for value in [Some(1), None] {
            let (sender, receiver) = channel();
            let thread = thread::spawn(move || value.map(|value| sender.send(value)));
            receiver.sleep(None);
            assert_eq!(receiver.try_recv(), value.map(Some).ok_or(Closed));
            thread.join().expect("no panic");
        }
    }

    #[test]
    fn the_time_of_sleep_is_limited() {
        let (sender, receiver) = channel::<i32>();
        receiver.sleep(Some(Duration::from_millis(1)));
        assert_eq!(receiver.try_recv(), Ok(None));
        drop(sender);
    }
}
