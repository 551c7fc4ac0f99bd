//! Several buffers as one message.

#![allow(unsafe_code)]

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use rdma_sys::ibv_sge;

use super::buf::Buf;
use crate::pd::ProtectionDomain;

/// Buffers that a request gathers from, or scatters to, in order. It moves into a request as a
/// [`Buf`] does, and comes back by [`Retired::into_list`](crate::Retired::into_list).
///
/// Making one allocates; posting it does not: make it once and use it again.
///
/// # Example
/// ```no_run
/// # use ibverbs::{BufList, Buf, QueuePair, Rc, wr};
/// # fn f(qp: &mut QueuePair<Rc>, header: Buf, body: Buf) -> ibverbs::Result<()> {
/// qp.post_send(wr::send(BufList::new(vec![header, body])))?;
/// # Ok(()) }
/// ```
///
/// # References
/// [`ibv_post_send(3)`](https://man7.org/linux/man-pages/man3/ibv_post_send.3.html)
#[derive(Debug)]
pub struct BufList(Box<Inner>);

#[derive(Debug)]
struct Inner {
    bufs: Vec<Buf>,
    /// Written when a request is made of the list, and not changed until it comes back.
    sges: Vec<ibv_sge>,
}

impl BufList {
    /// The buffers in order. They must be of one protection domain, or posting refuses them.
    pub fn new(bufs: Vec<Buf>) -> Self {
        let sges = Vec::with_capacity(bufs.len());
        Self(Box::new(Inner { bufs, sges }))
    }

    /// The buffers again.
    pub fn into_bufs(self) -> Vec<Buf> {
        self.0.bufs
    }

    /// Their domain, if they have one and the same.
    pub(crate) fn pd(&self) -> Option<&ProtectionDomain> {
        let (first, rest) = self.0.bufs.split_first()?;
        rest.iter()
            .all(|buf| buf.pd().is(first.pd()))
            .then(|| first.pd())
    }

    /// Prepares a send of what the buffers show.
    pub(crate) fn prepare_source(&mut self) {
        let Inner { bufs, sges } = &mut *self.0;
        sges.clear();
        sges.extend(bufs.iter().map(Buf::shown));
    }

    /// Prepares a receive into all of the buffers.
    pub(crate) fn prepare_target(&mut self) {
        let Inner { bufs, sges } = &mut *self.0;
        sges.clear();
        sges.extend(bufs.iter().map(Buf::whole));
    }

    /// What the address of [`into_raw`](Self::into_raw) is a multiple of.
    pub(crate) const ALIGN: usize = align_of::<Inner>();

    /// As a pointer, which owns the list.
    pub(crate) fn into_raw(self) -> NonNull<()> {
        // SAFETY: a box is not null.
        unsafe { NonNull::new_unchecked(Box::into_raw(self.0).cast()) }
    }

    /// # Safety
    /// The pointer is from [`into_raw`](Self::into_raw), and is used once.
    pub(crate) unsafe fn from_raw(raw: *mut ()) -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { Box::from_raw(raw.cast()) })
    }

    /// The entries as prepared, on the heap: they do not move with the list.
    pub(crate) fn sges(&self) -> &[ibv_sge] {
        &self.0.sges
    }

    /// Lets the buffers show the first `len` bytes of all of them.
    pub(crate) fn show(&mut self, mut len: usize) {
        for buf in &mut self.0.bufs {
            let here = len.min(buf.capacity());
            buf.set_len(here);
            len -= here;
        }
    }
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
