//! Work queue elements, as the provider writes them.

use zerocopy::FromBytes;
use zerocopy::byteorder::network_endian::{U32, U64};
use zerocopy::{Immutable, IntoBytes, KnownLayout};

use crate::network::packet::flag;

/// Operations.
pub(super) mod opcode {
    pub(crate) const NOP: u8 = 0x00;
    pub(crate) const SEND_INVAL: u8 = 0x01;
    pub(crate) const RDMA_WRITE: u8 = 0x08;
    pub(crate) const RDMA_WRITE_IMM: u8 = 0x09;
    pub(crate) const SEND: u8 = 0x0a;
    pub(crate) const SEND_IMM: u8 = 0x0b;
    pub(crate) const RDMA_READ: u8 = 0x10;
    pub(crate) const ATOMIC_CS: u8 = 0x11;
    pub(crate) const ATOMIC_FA: u8 = 0x12;
    pub(crate) const UMR: u8 = 0x25;

    /// All of them.
    pub(super) const KNOWN: [u8; 10] = [
        NOP,
        SEND_INVAL,
        RDMA_WRITE,
        RDMA_WRITE_IMM,
        SEND,
        SEND_IMM,
        RDMA_READ,
        ATOMIC_CS,
        ATOMIC_FA,
        UMR,
    ];
}

/// Key of a data segment that ends a list.
const INVALID_LKEY: u32 = 0x100;
/// Flag of inline data, in place of a length.
const INLINE: u32 = 0x8000_0000;

/// The parts that follow the control segment, by type of queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layout {
    pub(super) xrc: bool,
    pub(super) address_vector: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct DataSegment {
    byte_count: U32,
    lkey: U32,
    address: U64,
}

impl DataSegment {
    pub(super) fn length(&self) -> u32 {
        self.byte_count.get()
    }

    pub(super) fn lkey(&self) -> u32 {
        self.lkey.get()
    }

    pub(super) fn address(&self) -> u64 {
        self.address.get()
    }
}

/// Reads the data segments of a receive request, up to the end of the list.
pub(super) fn receive_segments(bytes: &[u8]) -> Vec<DataSegment> {
    data_segments(bytes)
        .take_while(|segment| segment.lkey() != INVALID_LKEY)
        .collect()
}

fn data_segments(bytes: &[u8]) -> impl Iterator<Item = DataSegment> {
    bytes
        .chunks_exact(16)
        .filter_map(|chunk| DataSegment::read_from_bytes(chunk).ok())
}

/// Address of a datagram or of a DC target.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct AddressVector {
    /// Q_Key in the first 4 bytes, or the key of a DC target.
    key: U64,
    dqp_dct: U32,
    stat_rate_sl: u8,
    fl_mlid: u8,
    rlid: [u8; 2],
    reserved: [u8; 4],
    rmac: [u8; 6],
    pub(super) traffic_class: u8,
    pub(super) hop_limit: u8,
    grh_gid_fl: U32,
    pub(super) gid: [u8; 16],
}

const _: () = assert!(size_of::<AddressVector>() == 48);

impl AddressVector {
    pub(super) fn qkey(&self) -> u32 {
        (self.key.get() >> 32) as u32
    }

    pub(super) fn dc_key(&self) -> u64 {
        self.key.get()
    }

    pub(super) fn qpn(&self) -> u32 {
        self.dqp_dct.get() & 0x00ff_ffff
    }

    pub(super) fn lid(&self) -> u16 {
        u16::from_be_bytes(self.rlid)
    }

    pub(super) fn service_level(&self) -> u8 {
        self.stat_rate_sl & 0xf
    }

    pub(super) fn has_grh(&self) -> bool {
        self.grh_gid_fl.get() & 1 << 30 != 0
    }

    pub(super) fn flow_label(&self) -> u32 {
        self.grh_gid_fl.get() & 0x000f_ffff
    }
}

/// Change of a memory key: binding or invalidating a window.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Umr {
    control: [u8; 8],
    /// Fields of the key that change.
    pub(super) mask: U64,
    control_rest: [u8; 32],
    pub(super) free: u8,
    reserved1: u8,
    pub(super) access_flags: u8,
    sf: u8,
    pub(super) qpn_mkey: U32,
    reserved2: [u8; 4],
    flags_pd: U32,
    pub(super) start: U64,
    pub(super) length: U64,
    rest: [u8; 32],
}

const _: () = assert!(size_of::<Umr>() == 48 + 64);

impl Umr {
    pub(super) fn pd(&self) -> u32 {
        self.flags_pd.get() & 0x00ff_ffff
    }
}

#[derive(Clone, Debug)]
pub(super) enum Data {
    Inline(Vec<u8>),
    Segments(Vec<DataSegment>),
}

impl Data {
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Inline(bytes) => bytes.len() as u64,
            Self::Segments(segments) => segments.iter().map(|s| u64::from(s.length())).sum(),
        }
    }
}

/// A send request.
#[derive(Clone, Debug)]
pub(super) struct Work {
    /// Index of the first block, which the completion names.
    pub(super) counter: u16,
    pub(super) opcode: u8,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) solicited: bool,
    /// Immediate data or key, in network byte order.
    pub(super) immediate: [u8; 4],
    pub(super) srqn: u32,
    pub(super) address_vector: Option<AddressVector>,
    pub(super) remote: Option<(u64, u32)>,
    /// Operands of an atomic operation: swap or add, and compare.
    pub(super) atomic: Option<(u64, u64)>,
    /// Key change with the segment that names the memory.
    pub(super) umr: Option<(Umr, Option<DataSegment>)>,
    pub(super) data: Data,
}

/// Size of a block of the send queue, in bytes.
pub(super) const BLOCK: usize = 64;

/// Returns the size of an element in blocks. `first` is its first block.
pub(super) fn blocks(first: &[u8]) -> u16 {
    let segments = u16::from(first[7] & 0x3f);
    segments.div_ceil(4).max(1)
}

/// Reads an element that is contiguous in `bytes`. Returns `None` if it is malformed.
pub(super) fn parse(bytes: &[u8], qpn: u32, counter: u16, layout: Layout) -> Option<Work> {
    // What follows the element in its last block is left over from an earlier one.
    let segments = usize::from(*bytes.get(7)? & 0x3f);
    let bytes = bytes.get(..segments * 16)?;
    let word = |at: usize| Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let first = word(0)?;
    if first >> 8 & 0xffff != u32::from(counter) || word(4)? >> 8 != qpn {
        return None;
    }
    let operation = (first & 0xff) as u8;
    if !opcode::KNOWN.contains(&operation) {
        return None;
    }
    let flags = bytes[11];
    let mut work = Work {
        signaled: flags & 8 != 0,
        fence: flags & 0xe0 != 0,
        solicited: flags & 2 != 0,
        immediate: bytes[12..16].try_into().ok()?,
        ..Work::new(counter, operation)
    };
    let mut at = 16;
    if operation == opcode::UMR {
        let umr = Umr::read_from_bytes(bytes.get(at..at + size_of::<Umr>())?).ok()?;
        at += size_of::<Umr>();
        work.umr = Some((umr, data_segments(bytes.get(at..)?).next()));
        return Some(work);
    }
    if operation == opcode::NOP {
        return Some(work);
    }
    if layout.xrc {
        work.srqn = word(at)?;
        at += 16;
    }
    if layout.address_vector {
        let size = size_of::<AddressVector>();
        work.address_vector = Some(AddressVector::read_from_bytes(bytes.get(at..at + size)?).ok()?);
        at += size;
    }
    let is_atomic = matches!(operation, opcode::ATOMIC_CS | opcode::ATOMIC_FA);
    if is_atomic
        || matches!(
            operation,
            opcode::RDMA_READ | opcode::RDMA_WRITE | opcode::RDMA_WRITE_IMM
        )
    {
        work.remote = Some((long(at)?, word(at + 8)?));
        at += 16;
    }
    if is_atomic {
        work.atomic = Some((long(at)?, long(at + 8)?));
        at += 16;
    }
    if let Some(header) = word(at).filter(|header| header & INLINE != 0) {
        let length = (header & !INLINE) as usize;
        work.data = Data::Inline(bytes.get(at + 4..at + 4 + length)?.to_vec());
    } else {
        work.data = Data::Segments(data_segments(bytes.get(at..)?).collect());
    }
    Some(work)
}

impl Work {
    /// Returns a request without flags and without data.
    pub(super) fn new(counter: u16, opcode: u8) -> Self {
        Self {
            counter,
            opcode,
            signaled: false,
            fence: false,
            solicited: false,
            immediate: [0; 4],
            srqn: 0,
            address_vector: None,
            remote: None,
            atomic: None,
            umr: None,
            data: Data::Segments(Vec::new()),
        }
    }

    /// Returns `true` if the request gets data back.
    pub(super) fn is_read(&self) -> bool {
        matches!(
            self.opcode,
            opcode::RDMA_READ | opcode::ATOMIC_CS | opcode::ATOMIC_FA
        )
    }

    /// Returns the flags of the request's packet that come from the element.
    pub(super) fn packet_flags(&self) -> u8 {
        if self.solicited { flag::SOLICITED } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_after_the_element_are_ignored() {
        let mut block = [0; BLOCK];
        // A write without data: two segments of 16 bytes.
        block[..8].copy_from_slice(&[0, 0, 4, opcode::RDMA_WRITE, 0, 0x40, 8, 2]);
        // An earlier element had inline data here.
        block[32..36].copy_from_slice(&[0x80, 0, 0, 1]);
        let work = parse(&block, 0x4008, 4, Layout::default()).expect("valid");
        assert_eq!(work.data.length(), 0);
        assert!(parse(&block, 0x4008, 5, Layout::default()).is_none());
        assert!(parse(&block, 0x4009, 4, Layout::default()).is_none());
        block[3] = 0x3f;
        assert!(parse(&block, 0x4008, 4, Layout::default()).is_none());
    }
}
