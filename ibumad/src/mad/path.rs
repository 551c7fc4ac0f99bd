//! Paths between ports (IBA 15.2.5.16).

use rdma_types::{Gid, Lid};

use super::bits::{put, record};
use super::datagram::AttrId;

record! {
    /// A path between two ports: the attribute PathRecord of subnet administration.
    ///
    /// # Example
    /// ```
    /// use ibumad::{Gid, mad::PathRecord};
    /// let (from, to) = (Gid([1; 16]), Gid([2; 16]));
    /// let wanted = PathRecord::between(from, to);
    /// assert_eq!((wanted.sgid(), wanted.dgid()), (from, to));
    /// ```
    pub struct PathRecord: 64 bytes, attribute AttrId::PATH_RECORD, {
        /// Identifier of the service that the path is for.
        service_id: u64 = 0 + 64,
        /// Destination GID.
        dgid: Gid = 64 + 128,
        /// Source GID.
        sgid: Gid = 192 + 128,
        /// LID of the destination, or of the router to it.
        dlid: Lid = 320 + 16,
        /// LID of the source.
        slid: Lid = 336 + 16,
        /// `true` if the path is for raw packets.
        raw_traffic: bool = 352 + 1,
        /// Flow label of the global route.
        flow_label: u32 = 356 + 20,
        /// Hop limit of the global route; greater than 1 if the path leaves the subnet.
        hop_limit: u8 = 376 + 8,
        /// Traffic class of the global route.
        traffic_class: u8 = 384 + 8,
        /// `true` if the reverse path is the same.
        reversible: bool = 392 + 1,
        /// Maximum number of paths to return, in a query.
        numb_path: u8 = 393 + 7,
        /// Partition key.
        pkey: u16 = 400 + 16,
        /// Quality-of-service class.
        qos_class: u16 = 416 + 12,
        /// Service level.
        sl: u8 = 428 + 4,
        /// Path MTU, encoded as in [`IbMtu`](crate::mad::IbMtu).
        mtu: u8 = 434 + 6,
        /// Static rate, encoded.
        rate: u8 = 442 + 6,
        /// Packet lifetime, encoded: 4.096 µs × 2^n.
        packet_life_time: u8 = 450 + 6,
        /// Preference among several paths; 0 is the most preferred.
        preference: u8 = 456 + 8,
    }
}

impl PathRecord {
    /// The component mask of the fields that [`between`](Self::between) sets: DGID, SGID,
    /// Reversible and NumbPath.
    pub const BETWEEN_COMPONENTS: u64 = 1 << 2 | 1 << 3 | 1 << 11 | 1 << 12;

    /// Creates a query for one reversible path from `sgid` to `dgid`.
    pub fn between(sgid: Gid, dgid: Gid) -> Self {
        let mut record = Self::default();
        put(&mut record.0, 64, 128, u128::from_be_bytes(dgid.0));
        put(&mut record.0, 192, 128, u128::from_be_bytes(sgid.0));
        put(&mut record.0, 392, 1, 1);
        put(&mut record.0, 393, 7, 1);
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_has_both_gids() {
        let (from, to) = (
            "fe80::1".parse().expect("a GID"),
            "fe80::2:3".parse().expect("a GID"),
        );
        let record = PathRecord::between(from, to);
        assert_eq!((record.sgid(), record.dgid()), (from, to));
        assert!(record.reversible());
        assert_eq!(PathRecord::BETWEEN_COMPONENTS, 0x180c);
        assert_eq!((record.numb_path(), record.as_bytes()[49]), (1, 0x81));
    }
}
