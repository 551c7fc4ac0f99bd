//! Querying and modifying a shared receive queue.

#![allow(unsafe_code)]

use rdma_sys::{IBV_SRQ_LIMIT, IBV_SRQ_MAX_WR, ibv_modify_srq, ibv_query_srq, ibv_srq_attr};

use super::options::{SrqAttr, SrqType};
use super::queue::SharedReceiveQueue;
use crate::convert::zero_or_errno;
use crate::error::Result;
use crate::raw::AsRaw;

impl<K: SrqType> SharedReceiveQueue<K> {
    /// Requests one asynchronous event when fewer than `limit` receives are left. 0 requests none.
    ///
    /// # Errors
    /// Fails if the limit exceeds the size of the queue.
    ///
    /// # Example
    /// The event announces that fewer than 16 receives are left, and the application posts more:
    /// ```no_run
    /// use ibverbs::{SharedReceiveQueue, event::EventType};
    /// # fn f(context: &ibverbs::Context, srq: &mut SharedReceiveQueue) -> ibverbs::Result<()> {
    /// srq.set_limit(16)?;
    /// let event = context.async_events()?.wait(None)?;
    /// if event.is_some_and(|event| event.event_type == EventType::SRQ_LIMIT_REACHED) {
    ///     println!("{} receives can be posted", srq.recv_slots_free());
    /// }
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_modify_srq")]
    pub fn set_limit(&mut self, limit: u32) -> Result<()> {
        self.modify(
            ibv_srq_attr {
                srq_limit: limit,
                ..Default::default()
            },
            IBV_SRQ_LIMIT,
        )
    }

    /// Resizes the device's queue. The maximum number of receives in flight stays that of the
    /// queue's creation.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device cannot resize it
    /// (siw).
    #[doc(alias = "ibv_modify_srq")]
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

    /// Queries the size, the number of scatter entries of a receive and the limit.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device does not support it
    /// (siw).
    #[doc(alias = "ibv_query_srq")]
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
