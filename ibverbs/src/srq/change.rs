//! How a shared receive queue stands, and what can be changed.

#![allow(unsafe_code)]

use rdma_sys::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_modify_srq, ibv_query_srq, ibv_srq_attr};

use super::options::{SrqAttr, SrqType};
use super::queue::SharedReceiveQueue;
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::raw::AsRaw;

impl<K: SrqType> SharedReceiveQueue<K> {
    /// Asks for one asynchronous event when fewer than `limit` receives are left; 0 asks for none.
    ///
    /// # Errors
    /// Fails when the limit is above the queue's length.
    ///
    /// # Example
    /// Fewer than 16 left: time to post more.
    /// ```no_run
    /// use ibverbs::{SharedReceiveQueue, event::EventType};
    /// # fn f(context: &ibverbs::Context, store: &mut SharedReceiveQueue) -> ibverbs::Result<()> {
    /// store.set_limit(16)?;
    /// let event = context.async_events()?.wait(None)?;
    /// if event.is_some_and(|event| event.event_type == EventType::SRQ_LIMIT_REACHED) {
    ///     println!("{} receives could be posted", store.recv_slots_free());
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_modify_srq(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)
    pub fn set_limit(&mut self, limit: u32) -> Result<()> {
        self.modify(
            ibv_srq_attr {
                srq_limit: limit,
                ..Default::default()
            },
            IBV_SRQ_LIMIT,
        )
    }

    /// Makes the device's queue longer or shorter. The receives that this library keeps in flight
    /// stay at most as many as at creation.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the device cannot (siw).
    ///
    /// # References
    /// [`ibv_modify_srq(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_srq.3.html)
    pub fn resize(&mut self, max_wr: u32) -> Result<()> {
        self.modify(
            ibv_srq_attr {
                max_wr,
                ..Default::default()
            },
            IBV_SRQ_MAX_WR,
        )
    }

    fn modify(&mut self, mut attr: ibv_srq_attr, mask: u32) -> Result<()> {
        // SAFETY: the queue is alive and the attributes are valid during the call.
        let returned = unsafe { ibv_modify_srq(self.as_raw(), &raw mut attr, mask as i32) };
        zero_or_errno("ibv_modify_srq", || self.describe(), returned)
    }

    /// How long the queue is, how many scatter entries a receive has, and which limit is set.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the device cannot say (siw).
    ///
    /// # References
    /// [`ibv_query_srq(3)`](https://man7.org/linux/man-pages/man3/ibv_query_srq.3.html)
    pub fn query(&self) -> Result<SrqAttr> {
        let mut attr = ibv_srq_attr::default();
        // SAFETY: the queue is alive and the structure valid for writing.
        let returned = unsafe { ibv_query_srq(self.as_raw(), &raw mut attr) };
        zero_or_errno("ibv_query_srq", || self.describe(), returned)?;
        Ok(SrqAttr {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            limit: attr.srq_limit,
        })
    }
}
