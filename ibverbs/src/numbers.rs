//! Numbers that peers tell each other: of queue pairs and shared receive queues, of packets, and
//! the keys of datagrams.

use std::fmt;

/// The number of a queue pair on its device (24 bits). Numbers are reused after a queue pair is
/// destroyed.
///
/// # Example
/// ```no_run
/// # fn f(qp: &mut ibverbs::QueuePair<ibverbs::Rc>, control: &mut impl std::io::Write) -> ibverbs::Result<()> {
/// let number = qp.qp_num(); // to be told to the peer
/// writeln!(control, "{number}").expect("the connection to the peer"); // 0x000011
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qpn(pub u32);

impl fmt::Display for Qpn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}

impl Qpn {
    /// Stands for all queue pairs that listen to a multicast group.
    pub const MULTICAST: Self = Self(0x00ff_ffff);
}

/// A queue key: datagrams are taken only from senders that know the receiver's.
///
/// # Example
/// ```no_run
/// use ibverbs::{Psn, Qkey, QueuePair, Ud};
/// # fn f(qp: &mut QueuePair<Ud>) -> ibverbs::Result<()> {
/// let known_to_senders = Qkey(0x1111_1111);
/// qp.start(1, 0, known_to_senders, Psn(0))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Qkey(pub u32);

/// A packet sequence number (24 bits).
///
/// # Example
/// ```
/// use ibverbs::{Mtu, Psn, RcPath};
/// let path = RcPath {
///     psn: Psn(0x12_3456),
///     ..RcPath::new(1, None, Mtu::B4096)
/// };
/// assert!(path.psn.0 < 1 << 24);
/// ```
///
/// # References
/// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html); IBA 9.7.2
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Psn(pub u32);

/// The number of a shared receive queue on its device (24 bits), by which XRC requests name it.
///
/// # Example
/// ```no_run
/// use ibverbs::{
///     QueuePair, wr,
///     xrc::{SrqNum, XrcSend},
/// };
/// # fn f(qp: &mut QueuePair<XrcSend>, number_the_peer_told: u32) -> ibverbs::Result<()> {
/// let store = SrqNum(number_the_peer_told);
/// qp.post_send(wr::send(wr::Inline(b"hello")).for_srq(store))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_create_srq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct SrqNum(pub u32);

impl fmt::Display for SrqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "0x{:06x}", self.0)
    }
}
