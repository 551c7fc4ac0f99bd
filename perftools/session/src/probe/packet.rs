//! The format of probes and their answers. All numbers are in network byte order.
//!
//! A probe causes two packets: an answer and a timing. It is longer than both together with their
//! headers, so that a reflector sends less than it receives, also to a forged source.
//!
//! | byte | field |
//! |---|---|
//! | 0 | magic `rperfprb` |
//! | 8 | version, 3 |
//! | 9 | kind: 1 probe, 2 answer, 3 timing |
//! | 10 | zero (16 bits) |
//! | 12 | flow label (32 bits) |
//! | 16 | key of the reflector |
//! | 24 | session of the prober |
//! | 32 | number of the probe |
//! | 40 | in a timing, time between the arrival of the probe and the answer, in nanoseconds |
//! | 48 | Q_Key of the prober's queue pair (32 bits), zero over UDP |
//! | 52 | zero, to the end: 64 bytes of an answer or a timing, 256 bytes of a probe |
//!
//! The Q_Key is random. A reflector needs no memory for it, and the header of each answer has it
//! too, so that the probe tells a host on the path nothing more.

/// Length of an answer and of a timing in bytes.
pub(crate) const REPLY_LEN: usize = 64;
/// Length of a probe in bytes: two replies, and 64 bytes of headers for each. It fits the smallest
/// MTU of RDMA.
pub(crate) const PROBE_LEN: usize = 256;

const MAGIC: &[u8; 8] = b"rperfprb";
const VERSION: u8 = 3;

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From the prober.
    Probe,
    /// From the reflector, as soon as the probe arrived.
    Answer,
    /// From the reflector, when the answer is sent.
    Timing,
}

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The kind.
    pub kind: Kind,
    /// Flow label of the probe and of its answers.
    pub flow_label: u32,
    /// Key of the reflector.
    pub key: u64,
    /// Session of the prober.
    pub session: u64,
    /// Number of the probe.
    pub id: u64,
    /// Time between the arrival of the probe and its answer, in nanoseconds.
    pub nanos: u64,
    /// Q_Key of the queue pair that gets the answers; 0 over UDP.
    pub qkey: u32,
}

impl Kind {
    /// Returns the length of a packet of this kind in bytes.
    pub(crate) const fn packet_len(self) -> usize {
        match self {
            Self::Probe => PROBE_LEN,
            Self::Answer | Self::Timing => REPLY_LEN,
        }
    }
}

impl Packet {
    /// Returns the bytes of the packet.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.kind.packet_len()];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8] = VERSION;
        bytes[9] = match self.kind {
            Kind::Probe => 1,
            Kind::Answer => 2,
            Kind::Timing => 3,
        };
        bytes[12..16].copy_from_slice(&self.flow_label.to_be_bytes());
        let words = [self.key, self.session, self.id, self.nanos];
        for (at, word) in bytes[16..48].chunks_exact_mut(8).zip(words) {
            at.copy_from_slice(&word.to_be_bytes());
        }
        bytes[48..52].copy_from_slice(&self.qkey.to_be_bytes());
        bytes
    }

    /// Reads a packet. Returns `None` if the bytes are something else, or have another length.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < REPLY_LEN {
            return None;
        }
        if &bytes[..8] != MAGIC || bytes[8] != VERSION {
            return None;
        }
        let kind = match bytes[9] {
            1 => Kind::Probe,
            2 => Kind::Answer,
            3 => Kind::Timing,
            _ => return None,
        };
        if bytes.len() != kind.packet_len() {
            return None;
        }
        let word = |at: usize| Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?));
        Some(Self {
            kind,
            flow_label: u32::from_be_bytes(*bytes.get(12..)?.first_chunk()?),
            key: word(16)?,
            session: word(24)?,
            id: word(32)?,
            nanos: word(40)?,
            qkey: u32::from_be_bytes(*bytes.get(48..)?.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn packets_read_back_and_other_bytes_do_not_panic(
            numbers: (u32, u64, u64, u64, u64, u32),
            other: Vec<u8>,
        ) {
            let (flow_label, key, session, id, nanos, qkey) = numbers;
            for kind in [Kind::Probe, Kind::Answer, Kind::Timing] {
                let packet = Packet { kind, flow_label, key, session, id, nanos, qkey };
                assert_eq!(Packet::decode(&packet.encode()), Some(packet));
                let encoded = packet.encode();
                assert_eq!(Packet::decode(&encoded[..encoded.len() - 1]), None);
                assert_eq!(Packet::decode(&[&encoded[..], &[0]].concat()), None);
            }
            assert_eq!(Packet::decode(&other), None);
        }
    }
}
