//! Memory of a peer.

use std::ops::Range;

/// The address, length and remote key of a peer's memory.
///
/// These are plain values that can be sent in any form. Having them does not grant access: the
/// registration by the owner decides, and the owner sees the memory as a
/// [`SharedRegion`](crate::SharedRegion).
///
/// Its text form is `ADDRESS:LENGTH:RKEY` in 42 characters, which can be parsed again.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, from_peer: RemoteMemory) -> ibverbs::Result<()> {
/// let record = from_peer
///     .slice(128..192)
///     .expect("a memory of at least 192 bytes");
/// let buf = qp.pd().buf(64)?;
/// qp.post_send(wr::read(buf, record))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteMemory {
    /// Address, as the peer registered it.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteMemory {
    /// Returns the bytes in `range`, or `None` if they are out of bounds.
    ///
    /// # Example
    /// ```
    /// use ibverbs::RemoteMemory;
    /// let all = RemoteMemory {
    ///     addr: 0x1000,
    ///     len: 64,
    ///     rkey: 7,
    /// };
    /// assert_eq!(
    ///     all.slice(8..16),
    ///     Some(RemoteMemory {
    ///         addr: 0x1008,
    ///         len: 8,
    ///         rkey: 7
    ///     })
    /// );
    /// assert_eq!(all.slice(60..68), None);
    /// ```
    pub fn slice(self, range: Range<u64>) -> Option<Self> {
        if range.end > self.len {
            return None;
        }
        Some(Self {
            addr: self.addr.checked_add(range.start)?,
            len: range.end.checked_sub(range.start)?,
            rkey: self.rkey,
        })
    }
}
