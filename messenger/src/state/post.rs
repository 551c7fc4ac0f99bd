//! Posting receives, messages and control messages.

use ibverbs::{Buf, Error, Rc, RemoteMemory, Result, wr};
use rdmacm::Connection;

use super::{Side, State};
use crate::codec::HEADER_LEN;
use crate::flow::{CONTROLS, Flow};

impl State {
    /// Posts what can be posted: receives, the rest of a message, and control messages.
    pub(crate) fn pump(&mut self) {
        if let Err(error) = self.try_pump() {
            self.fail_with(&error);
        }
    }

    fn try_pump(&mut self) -> Result<()> {
        if self.is_over || self.failure.is_some() {
            return Ok(());
        }
        self.refill()?;
        if self.greeting_is_due && self.can_post_control() {
            self.greeting_is_due = false;
            let bytes = self.greeting.encode();
            self.flow.greeting_sent();
            self.post_control(&bytes)?;
        }
        if let Some((bytes, start)) = self.outgoing.take() {
            match self.send_fragments(&bytes, start)? {
                Some(sent) if start + sent == bytes.len() => {
                    self.wake(Side::Send);
                    #[cfg(feature = "tokio")]
                    self.wake(Side::Rest);
                }
                sent => self.outgoing = Some((bytes, start + sent.unwrap_or(0))),
            }
        }
        while self.flow.greeting_is_sent() && self.peer.is_some() && self.can_post_control() {
            let Some(header) = self.flow.next_control() else {
                break;
            };
            self.post_control(&header.encode())?;
        }
        Ok(())
    }

    /// Posts the receives for what the peer can send. The next header may announce them.
    fn refill(&mut self) -> Result<()> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        if !self.must_refill || self.is_over {
            return Ok(());
        }
        self.must_refill = false;
        self.flow.grant(std::mem::take(&mut self.released));
        if let Some(receives) = &self.receives {
            return receives.refill();
        }
        let needed = self.flow.receives_needed();
        while self.receives_posted < needed {
            let Some(buf) = self.pools.recv.take() else {
                debug_assert!(false, "a credit was returned before its buffer");
                break;
            };
            let request = wr::recv(buf);
            connection
                .qp_mut()
                .post_recv(request)
                .map_err(Error::from)?;
            self.receives_posted += 1;
        }
        Ok(())
    }

    /// Prepares for sending data or the end of the stream.
    pub(super) fn start_sending(&mut self) {
        self.must_refill |= self.flow.start_sending();
    }

    fn can_post_control(&self) -> bool {
        let has_slot = |connection: &Connection| connection.qp().send_slots_free() > 0;
        self.connection.as_ref().is_some_and(has_slot)
            && self.controls_in_flight < CONTROLS.into()
            && self.pools.control.available() > 0
    }

    /// Posts an empty WRITE if the peer's greeting has not arrived. Returns `false` if it has, or
    /// if the connection has ended.
    pub(crate) fn post_rtr(&mut self) -> bool {
        if self.peer.is_some() || self.is_over || self.failure.is_some() {
            return false;
        }
        // Earlier ones that have not completed will still be sent.
        if self.flow.greeting_is_sent() && self.can_post_control() {
            let nowhere = RemoteMemory {
                addr: 0,
                len: 0,
                rkey: 0,
            };
            let posted = self.post_from_control_pool(&[], |buf| wr::write(buf, nowhere));
            if let Err(error) = posted {
                self.fail_with(&error);
            }
        }
        true
    }

    fn post_control(&mut self, bytes: &[u8]) -> Result<()> {
        self.post_from_control_pool(bytes, wr::send)
    }

    fn post_from_control_pool<O: wr::Operation<Rc, Buf>>(
        &mut self,
        bytes: &[u8],
        request: impl FnOnce(Buf) -> wr::SendRequest<O, Buf>,
    ) -> Result<()> {
        let (Some(connection), Some(mut buf)) = (&mut self.connection, self.pools.control.take())
        else {
            return Ok(());
        };
        buf.set_len(bytes.len());
        buf.copy_from_slice(bytes);
        connection
            .qp_mut()
            .post_send(request(buf))
            .map_err(Error::from)?;
        self.controls_in_flight += 1;
        Ok(())
    }

    /// Returns the number of payload bytes of one fragment to the peer.
    fn fragment_len(&self) -> usize {
        let peer = self
            .peer
            .map_or(usize::MAX, |peer| peer.receive_len as usize);
        self.pools.send.buf_size().min(peer) - HEADER_LEN
    }

    /// Returns the number of bytes that a stream writes at once.
    pub(crate) fn write_len(&self) -> usize {
        let max_len = self.peer.map_or(usize::MAX, |peer| peer.max_len as usize);
        self.fragment_len().min(max_len)
    }

    /// Posts as many fragments of a message as possible, from byte `start` on. Returns the number
    /// of bytes posted, or `None` if nothing can be posted now.
    pub(super) fn send_fragments(&mut self, bytes: &[u8], start: usize) -> Result<Option<usize>> {
        self.post_copies(&bytes[start..], self.fragment_len(), |remaining| remaining)
    }

    /// Posts as many bytes of a stream as possible, each buffer as a message of its own. Returns
    /// their number, or `None` if nothing can be posted now.
    #[cfg(feature = "tokio")]
    pub(super) fn send_bytes(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        self.post_copies(bytes, self.write_len(), |_| 0)
    }

    /// Posts copies of at most `len` bytes with one doorbell, one copy even if `bytes` is empty.
    /// `announced` converts the number of bytes after a copy to the number that its header
    /// contains. Returns the number of bytes posted.
    fn post_copies(
        &mut self,
        bytes: &[u8],
        len: usize,
        announced: impl Fn(usize) -> usize,
    ) -> Result<Option<usize>> {
        if !self.can_post_data() {
            return Ok(None);
        }
        let mut next = self.pools.send.take();
        if next.is_none() {
            return Ok(None);
        }
        self.start_sending();
        self.refill()?;
        let Some(connection) = &mut self.connection else {
            return Ok(None);
        };
        let (pool, flow) = (&self.pools.send, &mut self.flow);
        let slots = connection.qp().send_slots_free();
        let max = slots.min(self.depth - self.sends_in_flight);
        let (mut count, mut start) = (0, 0);
        connection.qp_mut().batch(|batch| {
            while let Some(mut buf) = next.take() {
                let end = bytes.len().min(start + len);
                buf.set_len(HEADER_LEN + end - start);
                buf[HEADER_LEN..].copy_from_slice(&bytes[start..end]);
                write_header(&mut buf, flow, announced(bytes.len() - end));
                batch.send(wr::send(buf)).map_err(Error::from)?;
                (count, start) = (count + 1, end);
                if end < bytes.len() && count < max && flow.data_credits() > 0 {
                    next = pool.take();
                }
            }
            Ok::<_, Error>(())
        })?;
        self.sends_in_flight += count;
        Ok(Some(start))
    }

    /// Returns `true` if the peer has a receive and the send queue a slot.
    pub(super) fn can_post_data(&self) -> bool {
        self.sends_in_flight < self.depth
            && self.flow.data_credits() > 0
            && self
                .connection
                .as_ref()
                .is_some_and(|connection| connection.qp().send_slots_free() > 0)
    }

    /// Posts a buffer that contains a message after the place of its header.
    pub(super) fn post_buffer(&mut self, mut buf: Buf) -> Result<()> {
        self.start_sending();
        self.refill()?;
        write_header(&mut buf, &mut self.flow, 0);
        if let Some(connection) = &mut self.connection {
            connection
                .qp_mut()
                .post_send(wr::send(buf))
                .map_err(Error::from)?;
            self.sends_in_flight += 1;
        }
        Ok(())
    }
}

/// Writes the header of the next data message into its buffer.
fn write_header(buf: &mut Buf, flow: &mut Flow, remaining: usize) {
    let count = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
    let header = flow.next_data(count(buf.len() - HEADER_LEN), count(remaining));
    buf[..HEADER_LEN].copy_from_slice(&header.encode());
}
