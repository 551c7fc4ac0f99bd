//! The message that describes one end of an RDMA connection.

use super::bytes::{Reader, Writer};

/// Length of the encoded node in bytes, including padding.
pub const LEN: usize = 40;

/// One end of an RDMA connection. With rdma_cm, only the memory and the depth of reads are used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Address of its memory.
    pub vaddr: u64,
    /// LID of its port.
    pub lid: u32,
    /// Queue pair number.
    pub qpn: u32,
    /// Initial packet sequence number.
    pub psn: u32,
    /// Number of its shared receive queue.
    pub srqn: u32,
    /// Remote key of its memory.
    pub rkey: u32,
    /// LID of the alternate path.
    pub alt_lid: u32,
    /// Maximum number of outstanding RDMA reads and atomics as responder.
    pub rd_atomic: u32,
}

impl Node {
    /// Encodes the node.
    pub fn encode(&self) -> [u8; LEN] {
        let numbers = [
            self.lid,
            self.qpn,
            self.psn,
            self.srqn,
            self.rkey,
            self.alt_lid,
            self.rd_atomic,
        ];
        numbers
            .into_iter()
            .fold(Writer::new().u64(self.vaddr), Writer::u32)
            .finish()
    }

    /// Decodes a node.
    pub fn decode(bytes: &[u8; LEN]) -> Self {
        let mut r = Reader(bytes);
        Self {
            vaddr: r.u64(),
            lid: r.u32(),
            qpn: r.u32(),
            psn: r.u32(),
            srqn: r.u32(),
            rkey: r.u32(),
            alt_lid: r.u32(),
            rd_atomic: r.u32(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_offsets_match_qperf() {
        let node = Node {
            vaddr: 0x0102_0304_0506_0708,
            lid: 9,
            qpn: 10,
            psn: 11,
            srqn: 12,
            rkey: 13,
            alt_lid: 14,
            rd_atomic: 15,
        };
        let bytes = node.encode();
        assert_eq!(bytes[..8], [8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(
            [8, 12, 16, 20, 24, 28, 32, 36].map(|at: usize| bytes[at]),
            [9, 10, 11, 12, 13, 14, 15, 0]
        );
        assert_eq!(Node::decode(&bytes), node);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_and_encode_to_the_same(head: [u8; 32], tail: [u8; 4]) {
            let mut bytes = [0; LEN];
            bytes[..32].copy_from_slice(&head);
            bytes[32..36].copy_from_slice(&tail);
            proptest::prop_assert_eq!(Node::decode(&bytes).encode(), bytes);
        }
    }
}
