//! The device's clock, used for completion timestamps.

#![allow(unsafe_code)]

use rdma_sys::{IBV_VALUES_MASK_RAW_CLOCK, ibv_query_rt_values_ex, ibv_values_ex};

use super::context::Context;
use crate::convert::zero_or_errno;
use crate::error::{Error, ErrorKind, Result};
use crate::raw::AsRaw;

impl Context {
    /// Reads the device's clock, in clock cycles.
    ///
    /// [`CompletionEx::timestamp`](crate::cq_ex::CompletionEx::timestamp) uses the same clock.
    /// [`DeviceAttrEx::hca_core_clock`](crate::caps::DeviceAttrEx) gives its frequency in kHz.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no readable clock, as on both software devices.
    #[doc(alias = "ibv_query_rt_values_ex")]
    pub fn raw_clock(&self) -> Result<u64> {
        const VERB: &str = "ibv_query_rt_values_ex";
        let what = || format!("the clock of {}", self.device_name());
        let mut values = ibv_values_ex {
            comp_mask: IBV_VALUES_MASK_RAW_CLOCK,
            ..Default::default()
        };
        // SAFETY: the context is open and the structure is writable.
        let returned = unsafe { ibv_query_rt_values_ex(self.as_raw(), &raw mut values) };
        zero_or_errno(VERB, what, returned)?;
        if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK == 0 {
            return Err(Error::new(ErrorKind::Unsupported, VERB, what()));
        }
        // Some providers return the counter in the nanoseconds field, others split it like a time.
        let (seconds, rest) = (
            values.raw_clock.tv_sec.unsigned_abs(),
            values.raw_clock.tv_nsec.unsigned_abs(),
        );
        Ok(seconds.wrapping_mul(1_000_000_000).wrapping_add(rest))
    }
}
