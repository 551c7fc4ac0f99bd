//! Requests and completions in the memory of the queues (`efa_io_defs.h` of libefa).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Size of a send request, in bytes.
pub(super) const SEND_SIZE: u16 = 64;
/// Size of a buffer of a receive request, in bytes.
pub(super) const RECEIVE_SIZE: u16 = 16;
/// Size of the data in a send request, in bytes.
pub(super) const INLINE_SIZE: u16 = 32;

/// Operations of a send request.
pub(super) mod operation {
    pub(crate) const SEND: u8 = 0;
    pub(crate) const RDMA_READ: u8 = 1;
}

const OPERATION: u8 = 0xf;
const HAS_IMMEDIATE: u8 = 1 << 4;
const INLINE: u8 = 1 << 5;
const METADATA: u8 = 1 << 7;

/// Bits of the keys in descriptors.
const KEY: u32 = 0x00ff_ffff;
/// The last buffer of a receive request.
const LAST: u32 = 1 << 31;

/// A part of the memory of the program.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Buffer {
    pub(super) length: u32,
    key: u32,
    address_low: u32,
    address_high: u32,
}

impl Buffer {
    pub(super) fn key(&self) -> u32 {
        self.key & KEY
    }

    /// Returns the key of memory at the peer, which has all bits.
    pub(super) fn remote_key(&self) -> u32 {
        self.key
    }

    pub(super) fn address(&self) -> u64 {
        u64::from(self.address_high) << 32 | u64::from(self.address_low)
    }
}

/// A send request.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Send {
    pub(super) id: u16,
    control: u8,
    control2: u8,
    pub(super) destination: u16,
    /// Bytes of inline data, or number of buffers.
    length: u16,
    pub(super) immediate: u32,
    pub(super) ah: u16,
    reserved: u16,
    pub(super) qkey: u32,
    reserved2: [u8; 12],
    data: [u8; INLINE_SIZE as usize],
}

const _: () = assert!(size_of::<Send>() == SEND_SIZE as usize && size_of::<Buffer>() == 16);

impl Send {
    /// Fails if the request lacks the bits that every request has.
    pub(super) fn check(&self) -> Result<(), Status> {
        const FIRST_AND_LAST: u8 = 1 << 2 | 1 << 3;
        const COMPLETION: u8 = 1 << 4;
        let control2 = FIRST_AND_LAST | COMPLETION;
        let is_valid = self.control & METADATA != 0 && self.control2 & control2 == control2;
        is_valid.then_some(()).ok_or(Status::InvalidOperation)
    }

    pub(super) fn operation(&self) -> u8 {
        self.control & OPERATION
    }

    pub(super) fn has_immediate(&self) -> bool {
        self.control & HAS_IMMEDIATE != 0
    }

    /// Returns the data that is in the request itself.
    pub(super) fn inline_data(&self) -> Option<&[u8]> {
        (self.control & INLINE != 0).then(|| self.data.get(..usize::from(self.length)))?
    }

    /// Returns the buffers of a SEND, or `None` if the request names too many.
    pub(super) fn buffers(&self) -> Option<Vec<Buffer>> {
        let all: [Buffer; 2] = zerocopy::transmute!(self.data);
        Some(all.get(..usize::from(self.length))?.to_vec())
    }

    /// Returns the memory at the peer and the local buffer of an RDMA READ.
    pub(super) fn read(&self) -> (Buffer, Buffer) {
        let [remote, local]: [Buffer; 2] = zerocopy::transmute!(self.data);
        (remote, local)
    }
}

/// A buffer of a receive request.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Receive {
    address_low: u32,
    address_high: u32,
    pub(super) id: u16,
    pub(super) length: u16,
    key_control: u32,
}

impl Receive {
    pub(super) fn key(&self) -> u32 {
        self.key_control & KEY
    }

    pub(super) fn is_last(&self) -> bool {
        self.key_control & LAST != 0
    }

    pub(super) fn address(&self) -> u64 {
        u64::from(self.address_high) << 32 | u64::from(self.address_low)
    }
}

/// Queue of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queue {
    Send = 1,
    Receive = 2,
}

/// Status of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    Flushed = 1,
    InvalidOperation = 3,
    InvalidAh = 4,
    InvalidKey = 5,
    BadLength = 6,
    RemoteBadDestination = 9,
    RemoteNotReady = 10,
    RemoteBadLength = 11,
    RemoteRefused = 12,
    Unresponsive = 13,
}

/// A completion without the phase bit. The sender's GID is present in large entries only.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Completion {
    pub(super) id: u16,
    pub(super) status: u8,
    pub(super) flags: u8,
    pub(super) qpn: u16,
    pub(super) length: u16,
    /// Address handle of the sender, or `0xffff`.
    pub(super) ah: u16,
    pub(super) source: u16,
    pub(super) immediate: u32,
    pub(super) source_gid: [u8; 16],
}

/// Sizes of a completion, without and with the GID.
pub(super) const COMPLETION_SIZE: u32 = 16;
pub(super) const LARGE_COMPLETION_SIZE: u32 = 32;

impl Completion {
    pub(super) fn new(queue: Queue, id: u16, qpn: u32, status: Status) -> Self {
        Self {
            id,
            status: status as u8,
            flags: (queue as u8) << 1,
            qpn: (qpn & 0xffff) as u16,
            ..Self::default()
        }
    }

    #[must_use]
    pub(super) fn immediate(mut self, immediate: u32) -> Self {
        self.flags |= 1 << 3;
        self.immediate = immediate;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn a_malformed_request_completes_with_an_error() {
        let mut send = Send::new_zeroed();
        assert_eq!(send.check(), Err(Status::InvalidOperation));
        (send.control, send.control2) = (METADATA, 0x1c);
        assert_eq!(send.check(), Ok(()));
    }
}
