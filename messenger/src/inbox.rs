//! Received data messages, without I/O: their order, their fragments, and the next message of the
//! application.

use std::collections::VecDeque;
use std::ops::Deref;

use super::codec::{HEADER_LEN, Header, Kind, Violation};

/// The bytes of a message.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) enum Content<B> {
    /// A message in one piece, after its header.
    Received(B),
    /// A message that arrived in several fragments.
    Assembled(Vec<u8>),
}

impl<B: Deref<Target = [u8]>> Content<B> {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Received(buf) => &buf[HEADER_LEN..],
            Self::Assembled(bytes) => bytes,
        }
    }
}

/// The data messages of a stream, in buffers of type `B`, which begin with a header.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Inbox<B> {
    /// Maximum length of a message.
    max_len: u32,
    /// Fragments in the order of arrival, with the number of bytes that follow each of them.
    arrived: VecDeque<(u32, B)>,
    /// Bytes that the last message in `arrived` still lacks.
    remaining: u32,
    /// A message whose fragments are being joined.
    assembly: Option<Vec<u8>>,
    /// The next message for the application.
    ready: Option<Content<B>>,
    /// Memory of an earlier message, for the next one that arrives in fragments.
    spare: Vec<u8>,
}

impl<B: Deref<Target = [u8]>> Inbox<B> {
    pub(crate) fn new(max_len: u32) -> Self {
        Self {
            max_len,
            arrived: VecDeque::new(),
            remaining: 0,
            assembly: None,
            ready: None,
            spare: Vec::new(),
        }
    }

    /// Checks that a message of the peer continues the stream.
    pub(crate) fn check(&self, header: &Header) -> Result<(), Violation> {
        if header.kind == Kind::Data {
            let following = header.len.checked_add(header.remaining);
            let expected = match self.remaining {
                0 => following.filter(|&total| total <= self.max_len),
                remaining => following.filter(|&following| following == remaining),
            };
            if expected.is_none() {
                return Err(format!(
                    "a fragment of {} bytes precedes {} more, after {} were announced; at most {} are allowed",
                    header.len, header.remaining, self.remaining, self.max_len
                )
                .into());
            }
        } else if header.is_end && self.remaining != 0 {
            return Err("the stream ends within a message".into());
        }
        Ok(())
    }

    /// Takes a data message that was checked.
    pub(crate) fn push(&mut self, header: &Header, buf: B) {
        self.remaining = header.remaining;
        self.arrived.push_back((header.remaining, buf));
    }

    /// Joins fragments until a message is complete. Later messages stay in their buffers until the
    /// application has taken it, so that the memory is bounded. Returns the number of buffers that
    /// were dropped.
    #[must_use]
    pub(crate) fn assemble(&mut self) -> u32 {
        let mut released = 0;
        while self.ready.is_none() {
            let Some((remaining, buf)) = self.arrived.pop_front() else {
                break;
            };
            match self.assembly.take() {
                None if remaining == 0 => self.ready = Some(Content::Received(buf)),
                assembly => {
                    let payload = &buf[HEADER_LEN..];
                    let mut bytes = assembly.unwrap_or_else(|| {
                        let mut bytes = std::mem::take(&mut self.spare);
                        // At most `max_len` bytes: checked when the fragment arrived.
                        bytes.reserve_exact(payload.len() + remaining as usize);
                        bytes
                    });
                    bytes.extend_from_slice(payload);
                    drop(buf);
                    released += 1;
                    if remaining == 0 {
                        self.ready = Some(Content::Assembled(bytes));
                    } else {
                        self.assembly = Some(bytes);
                    }
                }
            }
        }
        released
    }

    /// Takes the next message, if it is complete.
    pub(crate) fn take(&mut self) -> Option<Content<B>> {
        self.ready.take()
    }

    /// Returns `true` if no message is complete and no fragment waits to be joined.
    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_none() && self.arrived.is_empty()
    }

    /// Keeps the memory of a message that the application has dropped.
    pub(crate) fn recycle(&mut self, mut bytes: Vec<u8>) {
        if bytes.capacity() > self.spare.capacity() {
            bytes.clear();
            self.spare = bytes;
        }
    }
}

#[cfg(test)]
impl<B: Deref<Target = [u8]>> Inbox<B> {
    /// Returns everything that later steps depend on: what follows each fragment, if a message is
    /// being joined, and if the next message is in a buffer.
    pub(crate) fn shape(&self) -> (Vec<u32>, u32, bool, Option<bool>) {
        let ready = self.ready.as_ref();
        (
            self.arrived
                .iter()
                .map(|&(remaining, _)| remaining)
                .collect(),
            self.remaining,
            self.assembly.is_some(),
            ready.map(|content| matches!(content, Content::Received(_))),
        )
    }

    /// Returns the payload of all messages in their order.
    pub(crate) fn payload(&self) -> Vec<u8> {
        let ready = self.ready.iter().map(Content::bytes);
        let assembly = self.assembly.iter().map(Vec::as_slice);
        let arrived = self.arrived.iter().map(|(_, buf)| &buf[HEADER_LEN..]);
        ready
            .chain(assembly)
            .chain(arrived)
            .flatten()
            .copied()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: Kind, len: u32, remaining: u32) -> Header {
        Header {
            kind,
            wants_ack: false,
            is_end: kind == Kind::Control,
            number: 1,
            received: 1,
            limit: 1,
            len,
            remaining,
        }
    }

    #[test]
    fn fragments_must_continue_a_message_within_its_limit() {
        let mut inbox = Inbox::new(10);
        let check = |inbox: &Inbox<Vec<u8>>, len, remaining| {
            inbox.check(&header(Kind::Data, len, remaining)).is_ok()
        };
        let end = header(Kind::Control, 0, 0);
        assert!(check(&inbox, 10, 0) && check(&inbox, 4, 6) && inbox.check(&end).is_ok());
        assert!(!check(&inbox, 11, 0) && !check(&inbox, 4, 7) && !check(&inbox, 1, u32::MAX));
        let push = |inbox: &mut Inbox<Vec<u8>>, byte: u8, len: u32, remaining| {
            let buf = vec![byte; HEADER_LEN + len as usize];
            inbox.push(&header(Kind::Data, len, remaining), buf);
        };
        push(&mut inbox, 1, 4, 6);
        assert!(check(&inbox, 6, 0) && check(&inbox, 2, 4));
        assert!(!check(&inbox, 5, 0) && !check(&inbox, 6, 1) && !check(&inbox, 7, 0));
        assert!(inbox.check(&end).is_err(), "within a message");
        let control = Header {
            is_end: false,
            ..end
        };
        assert!(inbox.check(&control).is_ok());
        push(&mut inbox, 2, 6, 0);
        assert!(inbox.check(&end).is_ok() && !inbox.is_empty());
        assert_eq!(inbox.assemble(), 2);
        let message = inbox.take().expect("complete");
        assert_eq!(message.bytes(), [&[1; 4][..], &[2; 6]].concat());
        assert!(inbox.is_empty());
    }
}
