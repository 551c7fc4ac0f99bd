//! The calls of the messenger's methods. Each call returns `None` instead of waiting.

use ibverbs::{Buf, Error, ErrorKind, Result, Retired};

use super::{Received, State};
use crate::codec::{HEADER_LEN, VERB};

impl State {
    /// Returns `Some` once the peer's greeting has arrived and this side's is on its way.
    pub(crate) fn try_greet(&mut self) -> Result<Option<()>> {
        self.check()?;
        self.pump();
        self.check()?;
        Ok((self.peer.is_some() && self.flow.greeting_is_sent()).then_some(()))
    }

    /// Returns `Some` if the first bytes of a message can be posted now.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_reserve(&mut self) -> Result<Option<()>> {
        self.check_sending()?;
        let is_free = self.outgoing.is_none() && self.pools.send.available() > 0;
        Ok((is_free && self.can_post_data()).then_some(()))
    }

    /// Sends a message for which [`try_reserve`](Self::try_reserve) has returned `Some`.
    #[cfg(feature = "tokio")]
    pub(crate) fn send_reserved(&mut self, message: &[u8]) -> Result<()> {
        if self.try_send(message)?.is_none() {
            // Another messenger of the group has taken the last buffer.
            debug_assert!(self.outgoing.is_none(), "a permit borrows what sends");
            self.outgoing = Some((message.to_vec(), 0));
        }
        Ok(())
    }

    /// Returns `true` if a task must be started that posts the rest of a message.
    #[cfg(feature = "tokio")]
    pub(crate) fn needs_rest_task(&mut self) -> bool {
        self.outgoing.is_some() && !std::mem::replace(&mut self.has_rest_task, true)
    }

    /// Returns `Some` once the task that posts the rest of a message has nothing left to do.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_finish_rest(&mut self) -> Option<()> {
        let is_done = self.outgoing.is_none() || self.failure.is_some() || self.is_over;
        self.has_rest_task = !is_done;
        is_done.then_some(())
    }

    /// Records that the task that posts the rest of a message has ended.
    #[cfg(feature = "tokio")]
    pub(crate) fn stop_rest_task(&mut self) {
        self.has_rest_task = false;
    }

    /// Sends a message, or returns `None` if nothing of it can be posted now.
    pub(crate) fn try_send(&mut self, message: &[u8]) -> Result<Option<()>> {
        self.check_sending()?;
        let max_len = self.peer.map_or(0, |peer| peer.max_len as usize);
        if message.len() > max_len {
            let detail = format!(
                "{}: the message is {} bytes long, and the peer receives at most {max_len} bytes",
                self.describe(),
                message.len()
            );
            return Err(Error::new(ErrorKind::InvalidInput, VERB, detail)
                .with_help("create the peer's messenger with a larger `max_len`"));
        }
        if self.outgoing.is_some() {
            return Ok(None);
        }
        let outcome = self.send_fragments(message, 0);
        if let Err(error) = &outcome {
            self.fail_with(error);
        }
        let Some(sent) = outcome? else {
            return Ok(None);
        };
        if sent < message.len() {
            // The rest follows when the peer allows it, even if the caller does not wait for that.
            self.outgoing = Some((message.to_vec(), sent));
        }
        Ok(Some(()))
    }

    /// Sends some bytes of a stream and returns their number, or `None` if nothing can be posted
    /// now. `bytes` is not empty.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_write(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        self.check_sending()?;
        if self.outgoing.is_some() {
            return Ok(None);
        }
        let outcome = self.send_bytes(bytes);
        if let Err(error) = &outcome {
            self.fail_with(error);
        }
        outcome
    }

    /// Fails if the connection or this side's stream has ended.
    fn check_sending(&mut self) -> Result<()> {
        self.check()?;
        if self.flow.has_ended() {
            let detail = format!("{}: a message after `shutdown`", self.describe());
            return Err(Error::new(ErrorKind::InvalidInput, VERB, detail)
                .with_help("send all messages before `shutdown`"));
        }
        Ok(())
    }

    /// Takes a buffer for a message of the application.
    pub(crate) fn try_buffer(&mut self) -> Result<Option<Buf>> {
        self.check()?;
        if self.receives.is_some() {
            let detail = "messenger group: a buffer for one messenger";
            return Err(Error::new(ErrorKind::InvalidInput, VERB, detail)
                .with_help("use `send`, or create a messenger without a group"));
        }
        let mut buf = self.pools.send.take();
        if let Some(buf) = &mut buf {
            buf.set_len(HEADER_LEN + self.write_len());
        }
        Ok(buf)
    }

    /// Sends the message in a buffer, or returns `None` if it cannot be posted now.
    pub(crate) fn try_send_buffer(&mut self, buf: &mut Option<Buf>) -> Result<Option<()>> {
        self.check_sending()?;
        if self.outgoing.is_some() || !self.can_post_data() {
            return Ok(None);
        }
        let Some(buf) = buf.take() else {
            return Ok(Some(()));
        };
        let outcome = self.post_buffer(buf);
        if let Err(error) = &outcome {
            self.fail_with(error);
        }
        outcome.map(Some)
    }

    /// Returns `Some` once no part of a message waits to be posted.
    pub(crate) fn try_finish_send(&mut self) -> Result<Option<()>> {
        self.check()?;
        Ok(self.outgoing.is_none().then_some(()))
    }

    /// Returns `Some` once the peer's library has acknowledged all messages.
    pub(crate) fn try_flush(&mut self) -> Result<Option<()>> {
        if self.outgoing.is_none() && self.flow.check_acked() {
            return Ok(Some(()));
        }
        self.check()?;
        self.pump();
        Ok(None)
    }

    /// Ends the stream. Returns `Some` once the peer's library has acknowledged that.
    pub(crate) fn try_shutdown(&mut self) -> Result<Option<()>> {
        if self.flow.end_is_sent() && self.flow.check_acked() {
            return Ok(Some(()));
        }
        self.check()?;
        if self.outgoing.is_none() {
            self.start_sending();
            self.flow.end();
        }
        self.pump();
        Ok(None)
    }

    /// Returns the next message, or the end of the peer's stream.
    pub(crate) fn try_recv(&mut self) -> Result<Option<Received>> {
        if let Some(content) = self.inbox.take() {
            self.assemble();
            if self.must_refill {
                self.pump();
            }
            return Ok(Some(Received::Message(content)));
        }
        if self.flow.peer_has_ended() && self.inbox.is_empty() {
            // The peer waits for the acknowledgement of its end. It must be delivered before the
            // application can drop the messenger.
            self.pump();
            let is_acked = !self.flow.ack_is_due() && self.controls_in_flight == 0;
            let is_over = self.is_over || self.failure.is_some();
            return Ok((is_acked || is_over).then_some(Received::End));
        }
        self.check()?;
        Ok(None)
    }

    /// Returns the next completed request of the application.
    pub(crate) fn try_completed(&mut self) -> Result<Option<Retired>> {
        match self.completed_requests.pop_front() {
            None => self.check().map(|()| None),
            request => Ok(request),
        }
    }
}
