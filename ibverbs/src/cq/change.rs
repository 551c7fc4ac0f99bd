//! What can be changed of a completion queue that is in use: its depth, and how eagerly it reports.

#![allow(unsafe_code)]

use std::time::Duration;

use rdma_sys::{
    IBV_CQ_ATTR_MODERATE, ibv_moderate_cq, ibv_modify_cq, ibv_modify_cq_attr, ibv_resize_cq,
};

use super::queue::CompletionQueue;
use crate::convert::zero_or_errno;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;
use crate::raw::AsRaw;

impl CompletionQueue {
    /// Makes the queue deeper, or less deep; what it holds stays. [`depth`](Self::depth) says what
    /// the device gave.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device cannot (siw), [`ErrorKind::InvalidInput`] above
    /// `max_cqe` and below the number of entries it holds.
    ///
    /// # References
    /// [`ibv_resize_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_resize_cq.3.html)
    pub fn resize(&mut self, depth: u32) -> Result<()> {
        let what = || {
            format!(
                "{} entries instead of {} on {}",
                depth,
                self.depth(),
                self.shared().context().device_name()
            )
        };
        let entries = i32::try_from(depth).ok().filter(|&entries| entries > 0);
        let Some(entries) = entries else {
            return Err(Error::new(ErrorKind::InvalidInput, "ibv_resize_cq", what()));
        };
        // SAFETY: the queue is alive, and used by nobody else in the meantime.
        let returned = unsafe { ibv_resize_cq(self.as_raw(), entries) };
        zero_or_errno("ibv_resize_cq", what, returned)
    }

    /// Lets the device wait with an event until `count` completions are there, or `period` has
    /// passed since the first (in whole microseconds): fewer interrupts, later. 0 and 0 turn it
    /// off.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device cannot (both software devices),
    /// [`ErrorKind::InvalidInput`] above what [`CqModerationCaps`](crate::caps::CqModerationCaps)
    /// says.
    ///
    /// # References
    /// [`ibv_modify_cq(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_cq.3.html)
    pub fn moderate(&mut self, count: u16, period: Duration) -> Result<()> {
        let what = || {
            format!(
                "one event for {count} completions or {period:?} on {}",
                self.shared().context().device_name()
            )
        };
        let Ok(microseconds) = u16::try_from(period.as_micros()) else {
            return Err(Error::new(ErrorKind::InvalidInput, "ibv_modify_cq", what())
                .with_hint("the verb takes at most 65535 µs"));
        };
        let mut attr = ibv_modify_cq_attr {
            attr_mask: IBV_CQ_ATTR_MODERATE,
            moderate: ibv_moderate_cq {
                cq_count: count,
                cq_period: microseconds,
            },
        };
        // SAFETY: the queue is alive and the attributes valid during the call.
        let returned = unsafe { ibv_modify_cq(self.as_raw(), &raw mut attr) };
        zero_or_errno("ibv_modify_cq", what, returned)
    }
}
