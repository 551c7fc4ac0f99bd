//! The halves of a messenger, for two threads.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use ibverbs::{ErrorKind, Result};

use super::TryRecv;
use super::message::Message;
use super::shared::{Owner, Shared};
use super::state::{Side, State};

/// The half of a messenger that sends: see [`Messenger::split`](crate::Messenger::split).
///
/// # Example
/// ```no_run
/// use messenger::SendHalf;
/// use std::time::Duration;
/// # fn f(mut sender: SendHalf) -> ibverbs::Result<()> {
/// sender.send(b"hello", Duration::from_secs(5))?;
/// sender.shutdown(Duration::from_secs(5))?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SendHalf(Arc<Owner>);

impl SendHalf {
    pub(crate) fn new(owner: Arc<Owner>) -> Self {
        Self(owner)
    }

    /// Sends a message: see [`Messenger::send`](crate::Messenger::send).
    ///
    /// # Errors
    /// Same as [`Messenger::send`](crate::Messenger::send).
    pub fn send(&mut self, message: &[u8], timeout: Duration) -> Result<()> {
        send(&self.0.0, message, timeout)
    }

    /// Sends a message without waiting: see [`Messenger::try_send`](crate::Messenger::try_send).
    ///
    /// # Errors
    /// Same as [`Messenger::try_send`](crate::Messenger::try_send).
    pub fn try_send(&mut self, message: &[u8]) -> Result<bool> {
        let mut step = |state: &mut State| state.try_send(message);
        Ok(self.0.0.attempt_armed(&mut step)?.is_some())
    }

    /// Waits until the peer's messenger has received all messages: see
    /// [`Messenger::flush`](crate::Messenger::flush).
    ///
    /// # Errors
    /// Same as [`Messenger::flush`](crate::Messenger::flush).
    pub fn flush(&mut self, timeout: Duration) -> Result<()> {
        self.0.0.block(Side::Send, timeout, State::try_flush)
    }

    /// Ends the stream: see [`Messenger::shutdown`](crate::Messenger::shutdown).
    ///
    /// # Errors
    /// Same as [`Messenger::shutdown`](crate::Messenger::shutdown).
    pub fn shutdown(&mut self, timeout: Duration) -> Result<()> {
        self.0.0.block(Side::Send, timeout, State::try_shutdown)
    }
}

/// The half of a messenger that receives: see [`Messenger::split`](crate::Messenger::split).
///
/// # Example
/// ```no_run
/// use messenger::RecvHalf;
/// use std::time::Duration;
/// # fn f(mut receiver: RecvHalf) -> ibverbs::Result<()> {
/// while let Some(message) = receiver.recv(Duration::from_secs(5))? {
///     println!("{} bytes", message.len());
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RecvHalf(Arc<Owner>);

impl RecvHalf {
    pub(crate) fn new(owner: Arc<Owner>) -> Self {
        Self(owner)
    }

    /// Returns the next message: see [`Messenger::recv`](crate::Messenger::recv).
    ///
    /// # Errors
    /// Same as [`Messenger::recv`](crate::Messenger::recv).
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Message>> {
        recv(&self.0.0, timeout)
    }

    /// Returns the next message without waiting: see
    /// [`Messenger::try_recv`](crate::Messenger::try_recv).
    ///
    /// # Errors
    /// Same as [`Messenger::try_recv`](crate::Messenger::try_recv).
    pub fn try_recv(&mut self) -> Result<TryRecv> {
        try_recv(&self.0.0)
    }
}

impl AsFd for SendHalf {
    /// Same as the descriptor of the [`Messenger`](crate::Messenger).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.driver.as_fd()
    }
}

impl AsFd for RecvHalf {
    /// Same as the descriptor of the [`Messenger`](crate::Messenger).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.0.driver.as_fd()
    }
}

pub(crate) fn send(shared: &Shared, message: &[u8], timeout: Duration) -> Result<()> {
    let mut is_posted = false;
    let outcome = shared.block(Side::Send, timeout, |state| {
        if !is_posted {
            is_posted = state.try_send(message)?.is_some();
        }
        if !is_posted {
            return Ok(None);
        }
        state.try_finish_send()
    });
    match outcome {
        // The messenger has the whole message now.
        Err(error) if is_posted && error.kind() == ErrorKind::TimedOut => Ok(()),
        outcome => outcome,
    }
}

pub(crate) fn recv(shared: &Shared, timeout: Duration) -> Result<Option<Message>> {
    let received = shared.block(Side::Recv, timeout, State::try_recv)?;
    Ok(received.into_message(&shared.endpoint))
}

pub(crate) fn try_recv(shared: &Shared) -> Result<TryRecv> {
    let Some(received) = shared.attempt_armed(&mut State::try_recv)? else {
        return Ok(TryRecv::Empty);
    };
    let message = received.into_message(&shared.endpoint);
    Ok(message.map_or(TryRecv::End, TryRecv::Message))
}
