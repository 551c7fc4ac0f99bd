//! A path between two ports (IBA 15.2.5.16).

use std::net::Ipv6Addr;

use super::bits::{put, record};
use super::datagram::AttrId;
use crate::identity::Lid;

record! {
    /// A path between two ports: the attribute PathRecord of subnet administration.
    pub struct PathRecord: 64 bytes, attribute AttrId::PATH_RECORD, {
        /// The service that the path is for.
        service_id: u64 = 0 + 64,
        /// GID of its end.
        dgid: Ipv6Addr = 64 + 128,
        /// GID of its beginning.
        sgid: Ipv6Addr = 192 + 128,
        /// LID of its end, or of the router to it.
        dlid: Lid = 320 + 16,
        /// LID of its beginning.
        slid: Lid = 336 + 16,
        /// Whether it is for raw packets.
        raw_traffic: bool = 352 + 1,
        /// The flow, for routers.
        flow_label: u32 = 356 + 20,
        /// Routers that may pass a packet on; more than 1 when it leaves the subnet.
        hop_limit: u8 = 376 + 8,
        /// Class of service, for routers.
        traffic_class: u8 = 384 + 8,
        /// Whether it goes back the same way.
        reversible: bool = 392 + 1,
        /// How many are asked for.
        numb_path: u8 = 393 + 7,
        /// The partition.
        pkey: u16 = 400 + 16,
        /// Quality of service.
        qos_class: u16 = 416 + 12,
        /// Service level.
        sl: u8 = 428 + 4,
        /// Largest packet, coded.
        mtu: u8 = 434 + 6,
        /// Rate, coded.
        rate: u8 = 442 + 6,
        /// How long a packet lives, coded.
        packet_life_time: u8 = 450 + 6,
        /// Rank among several, the lowest first.
        preference: u8 = 456 + 8,
    }
}

impl PathRecord {
    /// The components that [`between`](Self::between) sets: DGID, SGID, Reversible and NumbPath.
    pub const BETWEEN: u64 = 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12;

    /// What to ask subnet administration for: one path from `sgid` to `dgid` and back.
    pub fn between(sgid: Ipv6Addr, dgid: Ipv6Addr) -> Self {
        let mut record = Self::default();
        put(&mut record.0, 64, 128, dgid.to_bits());
        put(&mut record.0, 192, 128, sgid.to_bits());
        put(&mut record.0, 392, 1, 1);
        put(&mut record.0, 393, 7, 1);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_names_both_ends() {
        let (from, to) = (
            "fe80::1".parse().expect("a GID"),
            "fe80::2:3".parse().expect("a GID"),
        );
        let record = PathRecord::between(from, to);
        assert_eq!((record.sgid(), record.dgid()), (from, to));
        assert!(record.reversible());
        assert_eq!((record.numb_path(), record.as_bytes()[49]), (1, 0x81));
    }
}
