//! Lists of buffers that form one message.

use std::ops::{Deref, DerefMut};

use rdma_sys::ibv_sge;

use super::buf::Buf;
use crate::pd::ProtectionDomain;

/// A list of buffers that a request gathers from or scatters to, in order.
///
/// A list moves into a request like a [`Buf`]; [`Retired::into_list`](crate::Retired::into_list)
/// returns it. Creating a list allocates memory and posting it does not, so it should be reused.
///
/// # Example
/// ```no_run
/// # use ibverbs::{BufList, Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, header: Buf, body: Buf) -> ibverbs::Result<()> {
/// qp.post_send(wr::send(BufList::new(vec![header, body])))?;
/// # Ok(()) }
/// ```
#[doc(alias = "ibv_post_send")]
#[derive(Debug)]
pub struct BufList(Box<ListedBufs>);

#[derive(Debug)]
struct ListedBufs {
    bufs: Vec<Buf>,
    /// Set when a request is created from the list and unchanged until the request completed.
    sges: Vec<ibv_sge>,
}

impl BufList {
    /// Creates a list of buffers. Posting a list fails if its buffers are in different protection
    /// domains.
    pub fn new(bufs: Vec<Buf>) -> Self {
        let sges = Vec::with_capacity(bufs.len());
        Self(Box::new(ListedBufs { bufs, sges }))
    }

    /// Returns the buffers.
    pub fn into_bufs(self) -> Vec<Buf> {
        self.0.bufs
    }

    /// Returns the protection domain of the buffers; `None` if there is no buffer or the domains
    /// differ.
    pub(crate) fn pd(&self) -> Option<&ProtectionDomain> {
        let (first, rest) = self.0.bufs.split_first()?;
        rest.iter()
            .all(|buf| buf.pd().is(first.pd()))
            .then(|| first.pd())
    }

    /// Prepares the entries for a send of the first `len()` bytes of each buffer.
    pub(crate) fn prepare_source(&mut self) {
        let ListedBufs { bufs, sges } = &mut *self.0;
        sges.clear();
        sges.extend(gather_entries(bufs.iter().map(Buf::sge)));
    }

    /// Prepares the entries for a receive into the whole buffers.
    pub(crate) fn prepare_target(&mut self) {
        let ListedBufs { bufs, sges } = &mut *self.0;
        sges.clear();
        sges.extend(bufs.iter().map(Buf::capacity_sge).copied());
    }

    /// Prepares the entries for `len` bytes of data of a peer. They are fewer bytes if the buffers
    /// are smaller.
    pub(crate) fn prepare_fetch(&mut self, mut len: u64) {
        let ListedBufs { bufs, sges } = &mut *self.0;
        sges.clear();
        for &sge in bufs.iter().map(Buf::capacity_sge) {
            let length = u32::try_from(len).unwrap_or(u32::MAX).min(sge.length);
            // See `gather_entries`.
            if length > 0 {
                sges.push(ibv_sge { length, ..sge });
                len -= u64::from(length);
            }
        }
    }

    /// Returns the prepared entries. They are on the heap and do not move with the list.
    pub(crate) fn sges(&self) -> &[ibv_sge] {
        &self.0.sges
    }

    /// Sets the lengths of the buffers for a message of `len` bytes that starts in the first
    /// buffer.
    pub(crate) fn set_total_len(&mut self, mut len: usize) {
        for buf in &mut self.0.bufs {
            let filled = len.min(buf.capacity());
            buf.set_len(filled);
            len -= filled;
        }
    }
}

/// Returns the entries of a list without those of no bytes, which crash the kernel of Soft-iWARP if
/// others follow (docs/drivers.md, fault 49). A list of empty entries only is harmless.
pub(crate) fn gather_entries(
    entries: impl Iterator<Item = ibv_sge> + Clone,
) -> impl Iterator<Item = ibv_sge> {
    let all_empty = entries.clone().all(|entry| entry.length == 0);
    entries.filter(move |entry| entry.length > 0 || all_empty)
}

impl Deref for BufList {
    type Target = [Buf];

    fn deref(&self) -> &[Buf] {
        &self.0.bufs
    }
}

impl DerefMut for BufList {
    fn deref_mut(&mut self) -> &mut [Buf] {
        &mut self.0.bufs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_entries_are_omitted_unless_all_are_empty() {
        let gathered = |lengths: &[u32]| {
            let entries = lengths.iter().map(|&length| ibv_sge {
                length,
                ..Default::default()
            });
            let lengths = gather_entries(entries).map(|entry| entry.length);
            lengths.collect::<Vec<_>>()
        };
        assert_eq!(gathered(&[3, 0, 5]), [3, 5]);
        assert_eq!(gathered(&[0, 0]), [0, 0]);
    }
}
