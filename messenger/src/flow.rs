//! Credits, acknowledgements and the end of the stream: the state of the protocol, without I/O.
//! `docs/design-messenger.md` describes the rules.

use std::collections::VecDeque;

use ibverbs::{Error, ErrorKind, Result};

use super::codec::{Greeting, HEADER_LEN, Header, Kind, MIN_RECEIVE_LEN, VERB, Violation};

/// Number of receives that data never uses, so that control messages can always be sent: the
/// greeting, two credit updates, a request for an acknowledgement, an acknowledgement, and the end
/// of the stream. Part of the protocol.
pub(crate) const RESERVE: u32 = 6;

/// Number of receives for the control messages that reach a side before it sends data or the end of
/// its stream: a request for an acknowledgement, and the end of the peer's stream.
const RECEIVER_RESERVE: u32 = 2;

/// Number of buffers for greetings and control messages. More of them wait for completions.
pub(crate) const CONTROLS: u16 = 4;

/// Maximum number of receives. Differences of counts stay far below 2^31.
pub(crate) const MAX_RECEIVES: u32 = 1 << 17;

/// The end of this side's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(test, derive(Hash))]
enum End {
    Open,
    /// The control message that ends the stream is not sent yet.
    Due,
    Sent,
}

/// State of the protocol on one side of a connection. Counts wrap around.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a condition of its own"
)]
#[derive(Debug)]
#[cfg_attr(test, derive(Clone, PartialEq, Eq, Hash))]
pub(crate) struct Flow {
    /// Number of messages sent, including the greeting.
    sent: u32,
    /// Number of messages that the peer's library has received.
    acked: u32,
    /// Number of messages sent when the last data message or the end was sent.
    to_ack: u32,
    /// Number of data messages sent.
    data_sent: u32,
    /// Number of data messages that the peer allows in total.
    limit: u32,
    /// Number of data messages that the peer's receives hold, from its greeting.
    peer_window: u32,
    /// Numbers of the control messages sent but not acknowledged, at most [`RESERVE`].
    controls: VecDeque<u32>,
    /// Number of messages sent when an acknowledgement was last requested, until it arrives.
    ack_request: Option<u32>,
    ack_request_is_due: bool,
    end: End,

    /// Number of data messages that this side's receives hold.
    window: u32,
    /// Number of receives for control messages that the peer can send now, at most [`RESERVE`].
    reserve: u32,
    /// Number of messages received, including the greeting.
    received: u32,
    /// Number of data messages received.
    data_received: u32,
    /// Number of data messages that the peer may send, given the receives posted.
    own_limit: u32,
    /// Limit last sent to the peer.
    announced: u32,
    ack_is_due: bool,
    has_greeted: bool,
    peer_has_ended: bool,
}

impl Flow {
    /// Creates the state of a side that announces `receives` receives, more than [`RESERVE`], and
    /// has posted [`receives_needed`](Self::receives_needed) of them.
    pub(crate) fn new(receives: u32) -> Self {
        let window = receives - RESERVE;
        Self {
            sent: 0,
            acked: 0,
            to_ack: 0,
            data_sent: 0,
            limit: 0,
            peer_window: 0,
            controls: VecDeque::with_capacity(RESERVE as usize),
            ack_request: None,
            ack_request_is_due: false,
            end: End::Open,
            window,
            // The first one is for the greeting.
            reserve: 1 + RECEIVER_RESERVE,
            received: 0,
            data_received: 0,
            own_limit: window,
            announced: window,
            ack_is_due: false,
            has_greeted: false,
            peer_has_ended: false,
        }
    }

    /// Records that the greeting was sent.
    pub(crate) fn greeting_sent(&mut self) {
        self.has_greeted = true;
        self.controls.push_back(self.sent);
        self.sent = self.sent.wrapping_add(1);
    }

    /// Checks the peer's greeting and applies it.
    pub(crate) fn receive_greeting(&mut self, greeting: &Greeting) -> Result<(), Violation> {
        let range = RESERVE + 1..=MAX_RECEIVES;
        if !range.contains(&greeting.receives) {
            return Err(format!(
                "the peer announces {} receives, expected {} to {MAX_RECEIVES}",
                greeting.receives,
                RESERVE + 1
            )
            .into());
        }
        if (greeting.receive_len as usize) < MIN_RECEIVE_LEN || greeting.max_len == 0 {
            return Err(format!(
                "the peer announces receives of {} bytes and messages of at most {} bytes",
                greeting.receive_len, greeting.max_len
            )
            .into());
        }
        self.received = 1;
        self.reserve = RECEIVER_RESERVE;
        self.peer_window = greeting.receives - RESERVE;
        self.limit = self.peer_window;
        // The passive side greets after it has received the active side's greeting.
        self.acknowledge(self.sent);
        Ok(())
    }

    /// Returns the number of data messages that can be sent now.
    pub(crate) fn data_credits(&self) -> u32 {
        self.limit.wrapping_sub(self.data_sent)
    }

    /// Creates the header of the next data message.
    pub(crate) fn next_data(&mut self, len: u32, remaining: u32) -> Header {
        let header = self.next(Kind::Data, len, remaining);
        self.data_sent = self.data_sent.wrapping_add(1);
        self.to_ack = self.sent;
        header
    }

    /// Creates the header of a control message, if one must be sent and the peer has a receive for
    /// it.
    pub(crate) fn next_control(&mut self) -> Option<Header> {
        let uncredited = self.own_limit.wrapping_sub(self.announced);
        let update_is_due = uncredited >= self.window.div_ceil(2);
        let is_due =
            update_is_due || self.ack_is_due || self.ack_request_is_due || self.end == End::Due;
        if !is_due || self.controls.len() >= RESERVE as usize {
            return None;
        }
        self.controls.push_back(self.sent);
        let mut header = self.next(Kind::Control, 0, 0);
        if self.end == End::Due {
            (self.end, header.is_end) = (End::Sent, true);
            self.to_ack = self.sent;
            // Everything sent ends with this message, so its acknowledgement is all that is needed.
            self.ack_request_is_due = true;
        }
        if std::mem::take(&mut self.ack_request_is_due) {
            header.wants_ack = true;
            self.ack_request = Some(self.sent);
        }
        Some(header)
    }

    fn next(&mut self, kind: Kind, len: u32, remaining: u32) -> Header {
        let number = self.sent;
        self.sent = self.sent.wrapping_add(1);
        self.announced = self.own_limit;
        self.ack_is_due = false;
        Header {
            kind,
            wants_ack: false,
            is_end: false,
            number,
            received: self.received,
            limit: self.own_limit,
            len,
            remaining,
        }
    }

    /// Checks a message of the peer and applies its header.
    pub(crate) fn receive(&mut self, header: &Header) -> Result<(), Violation> {
        if header.number != self.received {
            return Err(format!(
                "message {} arrived instead of message {}",
                header.number, self.received
            )
            .into());
        }
        let in_flight = self.sent.wrapping_sub(self.acked);
        if header.received.wrapping_sub(self.acked) > in_flight {
            return Err(format!(
                "the peer acknowledges {} messages of {}",
                header.received, self.sent
            )
            .into());
        }
        // The peer's receives hold `peer_window` data messages, and a limit is never lowered.
        let granted = header.limit.wrapping_sub(self.data_sent);
        let raised = header.limit.wrapping_sub(self.limit);
        if granted > self.peer_window || raised > self.peer_window {
            return Err(format!(
                "the peer grants {granted} credits, {raised} of them new, for {} receives",
                self.peer_window
            )
            .into());
        }
        if header.kind == Kind::Data {
            if self.peer_has_ended {
                return Err("a data message follows the end of the stream".into());
            }
            if self.data_received == self.own_limit {
                return Err("a data message exceeds the peer's credits".into());
            }
            self.data_received = self.data_received.wrapping_add(1);
        }
        self.received = self.received.wrapping_add(1);
        self.limit = header.limit;
        self.acknowledge(header.received);
        self.ack_is_due |= header.wants_ack;
        self.peer_has_ended |= header.is_end;
        Ok(())
    }

    fn acknowledge(&mut self, received: u32) {
        self.acked = received;
        if self.has_acked(self.to_ack) {
            // It must not fall behind while this side sends control messages only.
            self.to_ack = self.acked;
        }
        while self
            .controls
            .front()
            .is_some_and(|&number| self.has_acked(number.wrapping_add(1)))
        {
            self.controls.pop_front();
        }
        if self.ack_request.is_some_and(|sent| self.has_acked(sent)) {
            self.ack_request = None;
        }
    }

    /// Lets the peer send `count` more data messages. [`receives_needed`](Self::receives_needed)
    /// must be posted before the next message is sent. Receives of control messages are posted
    /// again at once, so that their acknowledgement is also their credit.
    pub(crate) fn grant(&mut self, count: u32) {
        self.own_limit = self.own_limit.wrapping_add(count);
    }

    /// Returns the number of receives that must be posted for what the peer can send now.
    pub(crate) fn receives_needed(&self) -> u32 {
        self.own_limit.wrapping_sub(self.data_received) + self.reserve
    }

    /// Prepares for sending data or the end of the stream, which the peer answers with further
    /// control messages. Returns `true` if this side needs more receives for them first.
    pub(crate) fn start_sending(&mut self) -> bool {
        std::mem::replace(&mut self.reserve, RESERVE) < RESERVE
    }

    fn has_acked(&self, sent: u32) -> bool {
        // `acked` is at most 2^31 messages behind.
        self.acked.wrapping_sub(sent) < 1 << 31
    }

    /// Returns `true` if the peer's library has received all data messages and the end. Otherwise
    /// requests an acknowledgement.
    pub(crate) fn check_acked(&mut self) -> bool {
        if self.has_acked(self.to_ack) {
            return true;
        }
        if self.ack_request.is_none() && self.end != End::Due {
            self.ack_request_is_due = true;
        }
        false
    }

    /// Ends this side's stream.
    pub(crate) fn end(&mut self) {
        if self.end == End::Open {
            self.end = End::Due;
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.end != End::Open
    }

    pub(crate) fn end_is_sent(&self) -> bool {
        self.end == End::Sent
    }

    pub(crate) fn greeting_is_sent(&self) -> bool {
        self.has_greeted
    }

    pub(crate) fn ack_is_due(&self) -> bool {
        self.ack_is_due
    }

    pub(crate) fn peer_has_ended(&self) -> bool {
        self.peer_has_ended
    }
}

/// Returns the greeting that describes a messenger with these options.
pub(crate) fn greeting(max_len: usize, buffer_len: usize, depth: u16) -> Result<Greeting> {
    let payload = buffer_len.min(max_len).max(1);
    let receive_len = (payload.saturating_add(HEADER_LEN)).max(MIN_RECEIVE_LEN);
    let receives = u32::from(depth.max(1)) + RESERVE;
    debug_assert!(receives <= MAX_RECEIVES);
    match (u32::try_from(receive_len), u32::try_from(max_len.max(1))) {
        (Ok(receive_len), Ok(max_len)) => Ok(Greeting {
            receive_len,
            receives,
            max_len,
        }),
        _ => Err(Error::new(
            ErrorKind::InvalidInput,
            VERB,
            format!("messages of at most {max_len} bytes in buffers of {buffer_len} bytes"),
        )
        .with_help("use less than 4 GiB for both")),
    }
}

#[cfg(test)]
impl Flow {
    /// Adds to all counts, as if so many messages had been exchanged.
    pub(crate) fn advance(&mut self, sent: Counts, received: Counts) {
        let add = |number: &mut u32, count| *number = number.wrapping_add(count);
        let acked = [&mut self.sent, &mut self.acked, &mut self.to_ack];
        for number in acked
            .into_iter()
            .chain(&mut self.controls)
            .chain(&mut self.ack_request)
        {
            add(number, sent.messages);
        }
        for number in [&mut self.data_sent, &mut self.limit] {
            add(number, sent.data);
        }
        add(&mut self.received, received.messages);
        for number in [
            &mut self.data_received,
            &mut self.own_limit,
            &mut self.announced,
        ] {
            add(number, received.data);
        }
    }

    /// Returns the numbers of messages that this side has sent and received.
    pub(crate) fn counts(&self) -> (Counts, Counts) {
        let sent = Counts {
            messages: self.sent,
            data: self.data_sent,
        };
        let received = Counts {
            messages: self.received,
            data: self.data_received,
        };
        (sent, received)
    }
}

/// Numbers of messages in one direction.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    pub(crate) messages: u32,
    pub(crate) data: u32,
}
