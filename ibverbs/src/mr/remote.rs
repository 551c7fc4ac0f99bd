//! Memory of a peer, as it is told to this side.

/// A piece of a peer's memory and the key that opens it: plain values, to be sent to the other side
/// in any form.
///
/// Knowing one does not make access safe or possible: the owner's registration decides, and the
/// owner sees the memory as a [`SharedRegion`](crate::SharedRegion).
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, Rc, RemoteMemory, wr};
/// # fn f(qp: &mut QueuePair<Rc>, told_by_the_peer: RemoteMemory) -> ibverbs::Result<()> {
/// let record = told_by_the_peer
///     .slice(128, 64)
///     .expect("64 bytes from 128 on");
/// let buf = qp.pd().buf(64)?;
/// qp.post_send(wr::read(buf, record))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RemoteMemory {
    /// Address in the peer's terms.
    pub addr: u64,
    /// Length in bytes.
    pub len: u64,
    /// Remote key.
    pub rkey: u32,
}

impl RemoteMemory {
    /// The `len` bytes from `offset` on; `None` when they do not lie within.
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
    ///     all.slice(8, 8),
    ///     Some(RemoteMemory {
    ///         addr: 0x1008,
    ///         len: 8,
    ///         rkey: 7
    ///     })
    /// );
    /// assert_eq!(all.slice(60, 8), None);
    /// ```
    pub fn slice(self, offset: u64, len: u64) -> Option<Self> {
        if offset.checked_add(len)? > self.len {
            return None;
        }
        Some(Self {
            addr: self.addr.checked_add(offset)?,
            len,
            rkey: self.rkey,
        })
    }
}
