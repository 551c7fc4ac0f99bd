//! The messages of the protocol, in network byte order. Nothing here trusts the peer.

use std::borrow::Cow;

/// Call named by the errors of a messenger.
pub(crate) const VERB: &str = "messenger";

/// Version of the protocol. Both ends must use the same one.
pub(crate) const VERSION: u16 = 1;

/// Length of a [`Greeting`].
pub(crate) const GREETING_LEN: usize = 32;

/// Length of a [`Header`].
pub(crate) const HEADER_LEN: usize = 24;

/// Minimum length of a receive, so that every version's greeting fits.
pub(crate) const MIN_RECEIVE_LEN: usize = 64;

const MAGIC: [u8; 8] = *b"RDMAmsgr";

/// Description of a violation of the protocol.
pub(crate) type Violation = Cow<'static, str>;

/// The first message of each side, which describes the receives that it has posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    /// Length of each receive in bytes, including the header.
    pub(crate) receive_len: u32,
    /// Number of receives posted.
    pub(crate) receives: u32,
    /// Maximum length of a message in bytes.
    pub(crate) max_len: u32,
}

impl Greeting {
    pub(crate) fn encode(self) -> [u8; GREETING_LEN] {
        let mut bytes = [0; GREETING_LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_be_bytes());
        for (at, value) in [
            (12, self.receive_len),
            (16, self.receives),
            (20, self.max_len),
        ] {
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// Decodes a greeting. Longer ones are of later versions, which may have more fields.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        if !bytes.starts_with(&MAGIC) || bytes.len() < GREETING_LEN {
            return Err("the peer is not a messenger".into());
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(format!(
                "the peer uses version {version} of the protocol instead of {VERSION}"
            )
            .into());
        }
        Ok(Self {
            receive_len: number_at(bytes, 12),
            receives: number_at(bytes, 16),
            max_len: number_at(bytes, 20),
        })
    }
}

/// Kind of a message after the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A message of the application, or a fragment of one.
    Data,
    /// Carries only the fields of its header.
    Control,
}

/// The header of every message after the greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// `true` if the peer must acknowledge this message at once.
    pub(crate) wants_ack: bool,
    /// `true` for the end of the stream: no data follows.
    pub(crate) is_end: bool,
    /// Number of the message. The greeting is message 0. Like the other counts it wraps around.
    pub(crate) number: u32,
    /// Number of messages that the sender's library has received.
    pub(crate) received: u32,
    /// Number of data messages that the receiver of this header may send in total.
    pub(crate) limit: u32,
    /// Length of the payload in bytes.
    pub(crate) len: u32,
    /// Number of bytes of the application's message that follow in later fragments.
    pub(crate) remaining: u32,
}

const WANTS_ACK: u8 = 1;
const IS_END: u8 = 2;

impl Header {
    pub(crate) fn encode(self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[0] = match self.kind {
            Kind::Data => 1,
            Kind::Control => 2,
        };
        bytes[1] = u8::from(self.wants_ack) * WANTS_ACK + u8::from(self.is_end) * IS_END;
        for (index, value) in [
            self.number,
            self.received,
            self.limit,
            self.len,
            self.remaining,
        ]
        .into_iter()
        .enumerate()
        {
            let at = 4 + 4 * index;
            bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// Decodes the header of a message and checks it against the length of the message.
    pub(crate) fn decode(message: &[u8]) -> Result<Self, Violation> {
        let Some(bytes) = message.first_chunk::<HEADER_LEN>() else {
            return Err(format!("a message of {} bytes has no header", message.len()).into());
        };
        let kind = match bytes[0] {
            1 => Kind::Data,
            2 => Kind::Control,
            kind => return Err(format!("a message has the unknown kind {kind}").into()),
        };
        let flags = bytes[1];
        if flags & !(WANTS_ACK | IS_END) != 0 || bytes[2..4] != [0, 0] {
            return Err(format!("a message has the unknown flags {flags:#x}").into());
        }
        let header = Self {
            kind,
            wants_ack: flags & WANTS_ACK != 0,
            is_end: flags & IS_END != 0,
            number: number_at(bytes, 4),
            received: number_at(bytes, 8),
            limit: number_at(bytes, 12),
            len: number_at(bytes, 16),
            remaining: number_at(bytes, 20),
        };
        let payload = message.len() - HEADER_LEN;
        if usize::try_from(header.len) != Ok(payload) {
            return Err(format!(
                "a header announces {} bytes, but {payload} bytes follow",
                header.len
            )
            .into());
        }
        match kind {
            Kind::Control if header.len != 0 || header.remaining != 0 => {
                Err("a control message has a payload".into())
            }
            Kind::Data if header.is_end => Err("a data message ends the stream".into()),
            Kind::Data if header.len == 0 && header.remaining != 0 => {
                Err("a fragment is empty".into())
            }
            _ => Ok(header),
        }
    }
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let mut number = [0; 4];
    number.copy_from_slice(&bytes[at..at + 4]);
    u32::from_be_bytes(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header = Header {
        kind: Kind::Data,
        wants_ack: true,
        is_end: false,
        number: 0x0102_0304,
        received: 5,
        limit: 6,
        len: 3,
        remaining: 7,
    };

    #[test]
    fn greetings_survive_a_round_trip_and_are_checked() {
        let greeting = Greeting {
            receive_len: 4120,
            receives: 22,
            max_len: 1 << 20,
        };
        let bytes = greeting.encode();
        assert_eq!(Greeting::decode(&bytes), Ok(greeting));
        assert!(bytes.len() <= MIN_RECEIVE_LEN);
        assert_eq!(
            Greeting::decode(&[&bytes[..], &[0; 9]].concat()),
            Ok(greeting)
        );
        for len in 0..GREETING_LEN {
            let violation = Greeting::decode(&bytes[..len]).expect_err("too short");
            assert!(violation.contains("not a messenger"));
        }
        let mut later = bytes;
        later[9] = 2;
        let violation = Greeting::decode(&later).expect_err("another version");
        assert!(violation.contains("version 2"), "{violation}");
    }

    #[test]
    fn headers_survive_a_round_trip() {
        let message = [&HEADER.encode()[..], b"abc"].concat();
        assert_eq!(message[4..8], [1, 2, 3, 4]);
        assert_eq!(Header::decode(&message), Ok(HEADER));
        let end = Header {
            kind: Kind::Control,
            is_end: true,
            len: 0,
            remaining: 0,
            ..HEADER
        };
        assert_eq!(Header::decode(&end.encode()), Ok(end));
    }

    #[test]
    fn malformed_headers_are_rejected() {
        let message = [&HEADER.encode()[..], b"abc"].concat();
        for len in 0..message.len() {
            assert!(Header::decode(&message[..len]).is_err(), "{len} bytes");
        }
        assert!(Header::decode(&[&message[..], &[0]].concat()).is_err());
        for (at, value) in [(0, 0), (0, 3), (1, 4), (1, 0x80), (2, 1), (1, 2)] {
            let mut changed = message.clone();
            changed[at] = value;
            assert!(Header::decode(&changed).is_err(), "{value} at {at}");
        }
        let control = Header {
            kind: Kind::Control,
            ..HEADER
        };
        assert!(Header::decode(&[&control.encode()[..], b"abc"].concat()).is_err());
        let control = Header { len: 0, ..control };
        assert!(Header::decode(&control.encode()).is_err(), "more follows");
        let empty = Header { len: 0, ..HEADER };
        assert!(
            Header::decode(&empty.encode()).is_err(),
            "an empty fragment"
        );
    }
}
