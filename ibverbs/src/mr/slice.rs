//! A part of a buffer, as a payload.

use std::ops::Range;

use rdma_sys::ibv_sge;

use super::buf::Buf;
use crate::pd::DomainKey;

/// A range of the bytes of a [`Buf`], which a request sends, or into which an RDMA read or an
/// atomic stores its result.
///
/// It moves into the request with the whole buffer, which the completion returns with its length
/// and its other bytes unchanged. Create it with [`Buf::into_slice`].
///
/// # Example
/// The previous value of a counter is stored behind a header:
/// ```no_run
/// use ibverbs::mr::BufSlice;
/// use ibverbs::{Buf, Error, QueuePair, Rc, RemoteMemory, wr};
/// fn take_ticket(qp: &mut QueuePair<Rc>, record: Buf, counter: RemoteMemory) -> Result<(), Error> {
///     let ticket: BufSlice = match record.into_slice(16..24) {
///         Ok(ticket) => ticket,
///         Err(record) => panic!("a record of {} bytes", record.len()),
///     };
///     qp.post_send(wr::fetch_add(ticket, counter, 1))?; // Retired::into_buf returns the record
///     Ok(())
/// }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Debug)]
pub struct BufSlice {
    buf: Buf,
    /// Within the buffer.
    start: u32,
    len: u32,
}

impl Buf {
    /// Returns a range of the first [`len`](slice::len) bytes as a payload.
    ///
    /// # Errors
    /// Returns the buffer if the range is out of bounds.
    pub fn into_slice(self, range: Range<usize>) -> Result<BufSlice, Self> {
        match (u32::try_from(range.start), u32::try_from(range.end)) {
            (Ok(start), Ok(end)) if start <= end && range.end <= self.len() => Ok(BufSlice {
                buf: self,
                start,
                len: end - start,
            }),
            _ => Err(self),
        }
    }
}

impl BufSlice {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns `true` if the length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the whole buffer.
    #[inline]
    pub fn into_buf(self) -> Buf {
        self.buf
    }

    #[inline]
    pub(crate) fn sge(&self) -> ibv_sge {
        let whole = self.buf.capacity_sge();
        ibv_sge {
            addr: whole.addr + u64::from(self.start),
            length: self.len,
            lkey: whole.lkey,
        }
    }

    #[inline]
    pub(crate) fn domain(&self) -> DomainKey {
        self.buf.domain()
    }
}
