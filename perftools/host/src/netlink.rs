//! Requests to the kernel over netlink, and their replies.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{
    DoneBuffer, Emitable, ErrorBuffer, NLA_HEADER_SIZE, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST,
    NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NlasIterator, parse_string, parse_u8,
    parse_u32, parse_u64,
};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, sockopt,
};
/// Size of the receive buffer. The kernel never sends longer messages in a dump.
const BUFFER: usize = 64 << 10;
/// Maximum size of all replies to one request: about a million queue pairs.
const MAX_REPLY: usize = 128 << 20;
/// Time limit for each reply. The kernel replies at once.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection to the kernel.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    /// Opens a connection, by default for `NETLINK_ROUTE`. It receives only messages of the kernel.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        rustix::net::connect(&socket, &SocketAddrNetlink::new(0, 0))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(TIMEOUT))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Requests a list of objects.
    pub(crate) fn dump(&mut self, message_type: u16, body: &impl Emitable) -> io::Result<Reply> {
        self.request(message_type, NLM_F_REQUEST | NLM_F_DUMP, body)
    }

    /// Requests one object.
    pub(crate) fn get(&mut self, message_type: u16, body: &impl Emitable) -> io::Result<Reply> {
        self.request(message_type, NLM_F_REQUEST | NLM_F_ACK, body)
    }

    fn request(
        &mut self,
        message_type: u16,
        flags: u16,
        body: &impl Emitable,
    ) -> io::Result<Reply> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = encode(message_type, flags, self.sequence, body);
        rustix::net::send(&self.socket, &request, SendFlags::empty())?;
        let mut buffer = vec![0; BUFFER];
        let mut reply = Reply::default();
        let mut received = 0;
        loop {
            let (len, sent) =
                rustix::net::recv(&self.socket, buffer.as_mut_slice(), RecvFlags::TRUNC)?;
            if sent > len {
                return Err(invalid("a message exceeds the receive buffer"));
            }
            received += len;
            if received > MAX_REPLY {
                return Err(invalid("the reply is too long"));
            }
            if reply.add(&buffer[..len], self.sequence)? {
                return Ok(reply);
            }
        }
    }
}

/// The messages of a reply.
#[derive(Debug, Default)]
pub(crate) struct Reply {
    messages: Vec<Vec<u8>>,
}

impl Reply {
    /// Adds the messages in `bytes`. Returns `true` if the reply is complete.
    ///
    /// Messages with another sequence number belong to an earlier request and are ignored.
    pub(crate) fn add(&mut self, mut bytes: &[u8], sequence: u32) -> io::Result<bool> {
        while !bytes.is_empty() {
            let message = NetlinkBuffer::new_checked(bytes).map_err(invalid)?;
            let end = (message.length() as usize).next_multiple_of(4);
            bytes = bytes.get(end..).unwrap_or_default();
            if message.sequence_number() != sequence {
                continue;
            }
            let payload = message.payload();
            let code = match message.message_type() {
                NLMSG_ERROR => ErrorBuffer::new_checked(payload)
                    .map_err(invalid)?
                    .code()
                    .map_or(0, i32::from),
                NLMSG_DONE if payload.is_empty() => 0,
                NLMSG_DONE => DoneBuffer::new_checked(payload).map_err(invalid)?.code(),
                _ => {
                    self.messages.push(payload.to_vec());
                    continue;
                }
            };
            return match code {
                0 => Ok(true),
                code => Err(io::Error::from_raw_os_error(
                    code.checked_neg().unwrap_or(i32::MAX),
                )),
            };
        }
        Ok(false)
    }

    /// Returns the payload of each message.
    pub(crate) fn payloads(&self) -> impl Iterator<Item = &[u8]> {
        self.messages.iter().map(Vec::as_slice)
    }

    /// Returns the messages that consist of attributes.
    pub(crate) fn messages(&self) -> impl Iterator<Item = Attributes<'_>> {
        self.payloads().map(Attributes)
    }
}

fn encode(message_type: u16, flags: u16, sequence: u32, body: &impl Emitable) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    let start = header.buffer_len();
    let len = start + body.buffer_len();
    header.length = u32::try_from(len).expect("a request is short");
    header.message_type = message_type;
    header.flags = flags;
    header.sequence_number = sequence;
    let mut bytes = vec![0; len];
    header.emit(&mut bytes);
    body.emit(&mut bytes[start..]);
    bytes
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// A list of attributes. What follows an invalid attribute is ignored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub &'a [u8]);

impl<'a> Attributes<'a> {
    /// Returns the values of all attributes of a type.
    pub(crate) fn all(self, kind: u16) -> impl Iterator<Item = &'a [u8]> {
        NlasIterator::new(self.0)
            .map_while(Result::ok)
            .filter(move |attribute| attribute.kind() == kind)
            .map(|attribute| {
                let len = usize::from(attribute.length());
                &attribute.into_inner()[NLA_HEADER_SIZE..len]
            })
    }

    /// Returns the attributes inside of all attributes of a type.
    pub(crate) fn nested(self, kind: u16) -> impl Iterator<Item = Attributes<'a>> {
        self.all(kind).map(Attributes)
    }

    fn first(self, kind: u16) -> Option<&'a [u8]> {
        self.all(kind).next()
    }

    /// Returns the value of an attribute of type `u8`.
    pub(crate) fn u8(self, kind: u16) -> Option<u8> {
        parse_u8(self.first(kind)?).ok()
    }

    /// Returns the value of an attribute of type `u32`.
    pub(crate) fn u32(self, kind: u16) -> Option<u32> {
        parse_u32(self.first(kind)?).ok()
    }

    /// Returns the value of an attribute of type `u64`.
    pub(crate) fn u64(self, kind: u16) -> Option<u64> {
        parse_u64(self.first(kind)?).ok()
    }

    /// Returns the value of an attribute of type string.
    pub(crate) fn text(self, kind: u16) -> Option<String> {
        parse_string(self.first(kind)?).ok()
    }
}
