//! Received messages.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Weak};

use ibverbs::{Buf, Error, ErrorKind, Result};

use super::codec::{HEADER_LEN, VERB};
use super::driver::Driver;
use super::endpoint::Endpoint;
use super::inbox::Content;
use super::lease::Lease;
use super::state::Received;

/// A registered buffer for one message, filled by the application and sent without a copy: see
/// [`Messenger::buffer`](crate::Messenger::buffer). It dereferences to the bytes of the message.
///
/// # Example
/// ```no_run
/// use messenger::Messenger;
/// use std::time::Duration;
/// # fn f(messenger: &mut Messenger) -> ibverbs::Result<()> {
/// const LIMIT: Duration = Duration::from_secs(5);
/// let mut buffer = messenger.buffer(LIMIT)?;
/// buffer[..5].copy_from_slice(b"hello");
/// buffer.truncate(5);
/// messenger.send_buffer(buffer, LIMIT)?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct SendBuffer {
    buf: Buf,
    /// Dropped after the buffer, which is in its pool then.
    unsent: Unsent,
}

/// Wakes the tasks that may wait for a buffer.
#[derive(Debug)]
pub(crate) struct Unsent(Weak<Driver>);

impl Unsent {
    /// Wakes no task, because the buffer was sent.
    pub(crate) fn disarm(mut self) {
        self.0 = Weak::new();
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        if let Some(driver) = self.0.upgrade() {
            driver.wake_all();
        }
    }
}

impl SendBuffer {
    pub(crate) fn new(buf: Buf, driver: &Arc<Driver>) -> Self {
        let unsent = Unsent(Arc::downgrade(driver));
        Self { buf, unsent }
    }

    /// Returns the parts of a buffer of the messenger that has this driver.
    pub(crate) fn into_parts(self, driver: &Arc<Driver>) -> Result<(Unsent, Buf)> {
        if self.unsent.0.as_ptr() != Arc::as_ptr(driver) {
            let detail = "a buffer of another messenger";
            return Err(Error::new(ErrorKind::InvalidInput, VERB, detail)
                .with_help("send a buffer of this messenger"));
        }
        Ok((self.unsent, self.buf))
    }

    /// Shortens the message to `len` bytes. Has no effect if it is not longer.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len() {
            self.buf.set_len(HEADER_LEN + len);
        }
    }
}

impl Deref for SendBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buf[HEADER_LEN..]
    }
}

impl DerefMut for SendBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf[HEADER_LEN..]
    }
}

/// A received message. It dereferences to the bytes of the message.
///
/// A message that arrived in one piece is still in the buffer that received it. Dropping it posts
/// the buffer again and lets the peer send another message. A program that keeps as many messages
/// as the messenger has receives gets no more messages.
///
/// `bytes::Bytes::from_owner(message)` shares a message without copying it.
///
/// # Example
/// ```no_run
/// use messenger::Messenger;
/// use std::time::Duration;
/// # fn f(messenger: &mut Messenger) -> ibverbs::Result<()> {
/// while let Some(message) = messenger.recv(Duration::from_secs(60))? {
///     println!("{} bytes: {:?}", message.len(), message.first());
/// }
/// # Ok(()) }
/// ```
pub struct Message {
    content: Option<Content<Buf>>,
    /// The messenger that posts the buffer again.
    owner: Weak<Endpoint>,
    /// Keeps the receive of the group reserved.
    _lease: Option<Arc<Lease>>,
}

impl Received {
    /// Returns the message, or `None` at the end of the stream.
    pub(crate) fn into_message(self, owner: &Arc<Endpoint>) -> Option<Message> {
        match self {
            Self::Message(content) => Some(Message {
                content: Some(content),
                owner: Arc::downgrade(owner),
                _lease: owner.lease.clone(),
            }),
            Self::End => None,
        }
    }
}

impl Message {
    /// Returns the bytes of the message. Copies them only if the message arrived in one piece.
    pub fn into_vec(mut self) -> Vec<u8> {
        match self.content.take() {
            Some(Content::Assembled(bytes)) => bytes,
            content => {
                self.content = content;
                self.to_vec()
            }
        }
    }
}

impl Deref for Message {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.content.as_ref().map_or(&[], Content::bytes)
    }
}

impl AsRef<[u8]> for Message {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        let (content, owner) = (self.content.take(), self.owner.upgrade());
        match (content, owner) {
            (Some(Content::Received(buf)), Some(owner)) => owner.release(buf),
            (Some(Content::Assembled(bytes)), Some(owner)) => owner.recycle(bytes),
            _ => {}
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

#[cfg(feature = "bytes")]
impl From<Message> for bytes::Bytes {
    /// Converts the message without copying it.
    fn from(message: Message) -> Self {
        Self::from_owner(message)
    }
}
