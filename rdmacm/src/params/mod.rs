//! Parameters of a connection.

mod private_data;

use ibverbs::{Context, Error, ErrorKind, Result};
use rdma_types::setters;

#[doc(inline)]
pub use ibverbs::qp::Ece;

pub use self::private_data::PrivateDataLimits;
pub(crate) use self::private_data::check_private_data;

/// Parameters of a connection.
///
/// # Example
/// ```
/// let params = rdmacm::ConnectParams::new().private_data(b"hello");
/// assert_eq!(params.retry_count, 6);
/// ```
#[doc(alias = "rdma_connect")]
#[doc(alias = "rdma_accept")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectParams<'a> {
    /// Private data for the peer's application. [`PrivateDataLimits`] has the maximum length.
    /// Default: `[]`.
    pub private_data: &'a [u8],
    /// Number of RDMA READs and atomics of the peer that this side serves concurrently. Lowered to
    /// the device's limit and to the number requested by the peer. Default: `255`.
    pub responder_resources: u8,
    /// Number of RDMA READs and atomics that this side can have in flight. Lowered to the device's
    /// limit and to the number served by the peer. Default: `255`.
    pub initiator_depth: u8,
    /// Enables hardware end-to-end flow control (InfiniBand and RoCE). Default: `true`.
    pub flow_control: bool,
    /// Number of retransmissions of an unacknowledged message, 0 to 7. Both sides use the active
    /// side's value. Ignored on iWARP. Default: `6`.
    ///
    /// Soft-RoCE retries forever with 7 and then never detects a peer that has vanished.
    pub retry_count: u8,
    /// Number of retries when the peer has no receive posted, 0 to 7; 7 retries forever. Ignored
    /// on iWARP. Default: `7`.
    pub rnr_retry_count: u8,
    /// Delay before the peer sends again when this side has no receive posted, as a code from 0 to
    /// 31: 1 is 0.01 ms, 12 is 0.64 ms, 0 is 655 ms (IBA table 45). Ignored on iWARP. Default:
    /// `12`.
    pub min_rnr_timer: u8,
    /// Enhanced connection establishment options, sent to the peer's driver. Ignored on iWARP.
    /// Default: `None`.
    ///
    /// They are usually those that [`QueuePair::query_ece`](ibverbs::QueuePair::query_ece)
    /// returns. Soft-RoCE and Soft-iWARP have none.
    pub ece: Option<Ece>,
}

impl ConnectParams<'_> {
    /// Returns the default parameters.
    pub const fn new() -> Self {
        Self {
            private_data: &[],
            responder_resources: u8::MAX,
            initiator_depth: u8::MAX,
            flow_control: true,
            retry_count: 6,
            rnr_retry_count: 7,
            min_rnr_timer: 12,
            ece: None,
        }
    }
}

impl Default for ConnectParams<'_> {
    fn default() -> Self {
        Self::new()
    }
}

setters! {
    ConnectParams<'a> {
        private_data: &'a [u8],
        responder_resources: u8,
        initiator_depth: u8,
        flow_control: bool,
        retry_count: u8,
        rnr_retry_count: u8,
        min_rnr_timer: u8,
        ece: Option<Ece>,
    }
}

impl ConnectParams<'_> {
    /// Rejects values that the kernel would truncate or reject without an explanation.
    pub(crate) fn check(&self, verb: &'static str, private_data_limit: usize) -> Result<()> {
        check_private_data(verb, self.private_data, private_data_limit)?;
        for (name, value, max) in [
            ("retry_count", self.retry_count, 7),
            ("rnr_retry_count", self.rnr_retry_count, 7),
            ("min_rnr_timer", self.min_rnr_timer, 31),
        ] {
            if value > max {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    verb,
                    format!("{name} {value}: expected 0 to {max}"),
                ));
            }
        }
        Ok(())
    }

    /// Returns these parameters with the depths lowered to the device's limits.
    pub(crate) fn limited_to(self, device: &Context) -> Result<Self> {
        let attr = device.query_device()?;
        let lower = |value: u8, max: u32| value.min(u8::try_from(max).unwrap_or(u8::MAX));
        Ok(Self {
            responder_resources: lower(self.responder_resources, attr.max_qp_rd_atom),
            initiator_depth: lower(self.initiator_depth, attr.max_qp_init_rd_atom),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_values_are_rejected() {
        for params in [
            ConnectParams::new().retry_count(8),
            ConnectParams::new().rnr_retry_count(8),
            ConnectParams::new().min_rnr_timer(32),
        ] {
            assert!(params.check("rdma_connect", 56).is_err(), "{params:?}");
        }
        assert!(ConnectParams::default().check("rdma_connect", 56).is_ok());
    }
}
