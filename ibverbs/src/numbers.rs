//! Queue pair numbers, shared receive queue numbers, packet sequence numbers and queue keys.

use std::fmt;

/// The number of a queue pair on its device (24 bits).
///
/// The number is reused after the queue pair was destroyed.
///
/// # Example
/// ```no_run
/// # fn f(qp: &mut ibverbs::QueuePair<ibverbs::Rc>, control: &mut impl std::io::Write) -> ibverbs::Result<()> {
/// let number = qp.qp_num(); // the peer needs it
/// writeln!(control, "{number}").expect("the connection to the peer"); // 0x000011
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_qp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qpn(pub u32);

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

impl Qpn {
    /// The queue pair number of multicast datagrams.
    pub const MULTICAST: Self = Self(0x00ff_ffff);
}

/// A queue key: a UD queue pair only accepts datagrams that carry its queue key.
///
/// # Example
/// ```no_run
/// use ibverbs::{DatagramAttr, Qkey, QueuePair, Ud};
/// # fn f(qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
/// let qkey = Qkey(0x1111_1111);
/// qp.start(&DatagramAttr::new(1, qkey))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_modify_qp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qkey(pub u32);

/// A packet sequence number (24 bits).
///
/// # Example
/// ```
/// use ibverbs::{Mtu, Psn, RcPath};
/// let path = RcPath::new(1, None, Mtu::B4096).psn(Psn(0x12_3456));
/// assert!(path.psn.0 < 1 << 24);
/// ```
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 9.7.2
#[doc(alias = "ibv_modify_qp")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Psn(pub u32);

impl Psn {
    /// Returns a number that cannot be predicted from earlier ones. With it, late packets of an
    /// earlier connection between the same queue pairs are not taken for those of a new one.
    ///
    /// # Example
    /// ```
    /// use ibverbs::{Mtu, Psn, RcPath};
    /// let path = RcPath::new(1, None, Mtu::B4096).psn(Psn::random());
    /// assert!(path.psn.0 < 1 << 24);
    /// ```
    ///
    /// # Panics
    /// Panics if the system has no random numbers, as `HashMap::new` does.
    pub fn random() -> Self {
        let bits = getrandom::u32().expect("random numbers of the system");
        Self(bits >> 8)
    }
}

/// The number of a shared receive queue on its device (24 bits), used in XRC requests.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, wr,
///     xrc::{SrqNum, XrcSend},
/// };
/// # fn f(qp: &mut QueuePair<XrcSend>, from_peer: u32) -> ibverbs::Result<()> {
/// let store = SrqNum(from_peer);
/// qp.post_send(wr::send(wr::Inline(b"hello")).for_srq(store))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_create_srq_ex")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SrqNum(pub u32);

impl fmt::Display for SrqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

#[cfg(all(test, feature = "serde"))]
mod tests {
    use crate::{Endpoint, Lid, Psn, Qpn, RemoteMemory};

    #[test]
    fn endpoint_and_remote_memory_round_trip() {
        let endpoint = Endpoint {
            qpn: Qpn(17),
            psn: Psn(0x00ab_cdef),
            lid: Lid(3),
            gid: "::ffff:10.99.0.1".parse().expect("a GID"),
        };
        let text = serde_json::to_string(&endpoint).expect("JSON");
        assert_eq!(
            text,
            r#"{"qpn":17,"psn":11259375,"lid":3,"gid":"::ffff:10.99.0.1"}"#
        );
        assert_eq!(
            serde_json::from_str::<Endpoint>(&text).expect("its own text"),
            endpoint
        );
        let memory = RemoteMemory {
            addr: u64::MAX - 4096,
            len: 4096,
            rkey: u32::MAX,
        };
        let text = serde_json::to_string(&memory).expect("JSON");
        assert_eq!(
            serde_json::from_str::<RemoteMemory>(&text).expect("its own text"),
            memory
        );
    }
}
