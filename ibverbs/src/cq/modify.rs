//! Changes to a completion queue in use: its depth and event moderation.

#![allow(unsafe_code)]

use std::time::Duration;

use rdma_sys::{
    IBV_CQ_ATTR_MODERATE, ibv_moderate_cq, ibv_modify_cq, ibv_modify_cq_attr, ibv_resize_cq,
};

use super::queue::CompletionQueue;
use crate::convert::zero_or_errno;
use crate::device::Avoided;
use crate::error::{Error, ErrorKind, Result};
use crate::raw::AsRaw;

impl CompletionQueue {
    /// Changes the depth of the queue and keeps its entries. [`depth`](Self::depth) then returns
    /// the depth granted by the device.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device cannot resize queues (Soft-iWARP).
    /// [`ErrorKind::InvalidInput`] if `depth` is 0, above `max_cqe`, or below the number of
    /// entries in the queue.
    #[doc(alias = "ibv_resize_cq")]
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        let what = || {
            format!(
                "from {} to {depth} entries on {}",
                self.depth(),
                self.inner().context().device_name()
            )
        };
        let entries = i32::try_from(depth).ok().filter(|&entries| entries > 0);
        let Some(entries) = entries else {
            return Err(Error::new(ErrorKind::InvalidInput, "ibv_resize_cq", what())
                .with_help("the depth must be at least 1 and at most the device's max_cqe"));
        };
        if self.inner().context().avoids(Avoided::CQ_RESIZE) {
            return Err(Error::new(ErrorKind::Unsupported, "ibv_resize_cq", what())
                .with_help("create another queue: the provider frees the old one if it fails"));
        }
        // SAFETY: the queue is alive, and `&mut self` keeps other threads from polling it.
        let returned = unsafe { ibv_resize_cq(self.as_raw(), entries) };
        zero_or_errno("ibv_resize_cq", what, returned)
    }

    /// Delays completion events until the queue has `count` completions or `period`, in whole
    /// microseconds, has passed since the first one. This saves interrupts and adds latency. A
    /// count and a period of 0 turn moderation off.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no moderation (Soft-RoCE and Soft-iWARP).
    /// [`ErrorKind::InvalidInput`] if a value is above the maximum in
    /// [`CqModerationCaps`](crate::caps::CqModerationCaps).
    #[doc(alias = "ibv_modify_cq")]
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<()> {
        let what = || {
            format!(
                "one event per {count} completions or {period:?} on {}",
                self.inner().context().device_name()
            )
        };
        let Ok(microseconds) = u16::try_from(period.as_micros()) else {
            return Err(Error::new(ErrorKind::InvalidInput, "ibv_modify_cq", what())
                .with_help("the period can be at most 65535 µs"));
        };
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE,
            moderate: ibv_moderate_cq {
                cq_count: count,
                cq_period: microseconds,
            },
        };
        // SAFETY: the queue is alive and the attributes are valid during the call.
        let returned = unsafe { ibv_modify_cq(self.as_raw(), &raw mut attr) };
        zero_or_errno("ibv_modify_cq", what, returned)
    }
}
