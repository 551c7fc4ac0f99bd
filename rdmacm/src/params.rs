//! Connection parameters.

use ibverbs::{Context, Error, ErrorKind, Result, TransportType};

use crate::ece::Ece;

/// Parameters of a connection.
///
/// # Example
/// ```
/// let params = rdmacm::ConnectParams {
///     private_data: b"hello",
///     ..Default::default()
/// };
/// assert_eq!(params.retry_count, 6);
/// ```
///
/// # References
/// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html),
/// [`rdma_accept(3)`](https://man7.org/linux/man-pages/man3/rdma_accept.3.html)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectParams<'a> {
    /// Bytes for the peer's program, at most as [`PrivateDataLimits`] says.
    pub private_data: &'a [u8],
    /// RDMA reads and atomics of the peer that this side serves at once. Lowered to what the
    /// device has and the peer asks for.
    pub responder_resources: u8,
    /// RDMA reads and atomics of this side that can be in flight. Lowered to what the device has
    /// and the peer serves.
    pub initiator_depth: u8,
    /// End-to-end flow control by the hardware (InfiniBand and RoCE).
    pub flow_control: bool,
    /// How often a message without acknowledgement is sent again, 0 to 7; of the active side only,
    /// for both, and not on iWARP.
    ///
    /// Soft-RoCE takes 7 for "for ever": a vanished peer would go unnoticed.
    pub retry_count: u8,
    /// How often a message is sent again to a peer that has no receive posted, 0 to 7; 7 is for
    /// ever. Not on iWARP.
    pub rnr_retry_count: u8,
    /// Code of the time that the peer waits before such a retry, 0 to 31: 1 is 0.01 ms, 12 is 0.64
    /// ms, 0 is 655 ms (IBA table 45). Not on iWARP.
    pub min_rnr_timer: u8,
    /// What this side's driver tells the peer's, if anything. Not on iWARP.
    pub ece: Option<Ece>,
}

impl Default for ConnectParams<'_> {
    fn default() -> Self {
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

impl ConnectParams<'_> {
    /// Refuses what would be cut off or refused without a reason further down.
    pub(crate) fn check(&self, verb: &'static str, limit: usize) -> Result<()> {
        check_private_data(verb, self.private_data, limit)?;
        for (name, value, most) in [
            ("retry_count", self.retry_count, 7),
            ("rnr_retry_count", self.rnr_retry_count, 7),
            ("min_rnr_timer", self.min_rnr_timer, 31),
        ] {
            if value > most {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    verb,
                    format!("{name} {value}: at most {most}"),
                ));
            }
        }
        Ok(())
    }

    /// These parameters with depths that the device has.
    pub(crate) fn within(self, device: &Context) -> Result<Self> {
        let attr = device.query_device()?;
        let least = |value: u8, most: u32| value.min(u8::try_from(most).unwrap_or(u8::MAX));
        Ok(Self {
            responder_resources: least(self.responder_resources, attr.max_qp_rd_atom),
            initiator_depth: least(self.initiator_depth, attr.max_qp_init_rd_atom),
            ..self
        })
    }
}

/// How many bytes of private data fit into the messages of a handshake, or of the resolution of a
/// service of datagrams.
///
/// # Example
/// ```
/// use ibverbs::TransportType;
/// use rdmacm::PrivateDataLimits;
/// let limits = PrivateDataLimits::of(TransportType::IB);
/// assert_eq!(
///     (limits.request, limits.reply, limits.reject),
///     (56, 196, 148)
/// ); // bytes
/// ```
///
/// # References
/// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html); IBA 12.6
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrivateDataLimits {
    /// Into a request: [`Ready::connect`](crate::Ready::connect),
    /// [`DatagramRoute::query`](crate::DatagramRoute::query).
    pub request: usize,
    /// Into its acceptance: [`Pending::accept`](crate::Pending::accept),
    /// [`ServiceRequest::accept`](crate::ServiceRequest::accept).
    pub reply: usize,
    /// Into its rejection: [`ConnectRequest::reject`](crate::ConnectRequest::reject),
    /// [`ServiceRequest::reject`](crate::ServiceRequest::reject).
    pub reject: usize,
}

impl PrivateDataLimits {
    /// The limits of connections over a transport, by IP addresses.
    ///
    /// On InfiniBand and RoCE the peer always sees the full length, padded with zeros; on iWARP
    /// exactly what was given.
    pub const fn of(transport: TransportType) -> Self {
        match transport {
            // The MPA frame has room for 512 bytes (RFC 5044), Linux for 256, of which it needs up
            // to 5 itself.
            TransportType::IWARP => Self {
                request: 251,
                reply: 251,
                reject: 251,
            },
            // A REQ has 92 bytes, of which the IP addressing annex takes its part; a REP has 196, a
            // REJ 148.
            _ => Self {
                request: 92 - IP_ANNEX,
                reply: 196,
                reject: 148,
            },
        }
    }

    /// The limits of connections on InfiniBand by GIDs and service numbers: nothing is needed for
    /// IP addresses.
    pub const fn of_ib_addresses() -> Self {
        Self {
            request: 92,
            reply: 196,
            reject: 148,
        }
    }

    /// The limits of asking for a service of datagrams (a SIDR_REQ has 216 bytes, a SIDR_REP 136).
    ///
    /// The peer always sees the full length, padded with zeros.
    pub const fn of_datagrams() -> Self {
        Self {
            request: 216 - IP_ANNEX,
            reply: 136,
            reject: 136,
        }
    }
}

/// What the IP addresses take of a request's private data (IBA A11).
const IP_ANNEX: usize = 36;

/// Refuses private data that does not fit.
pub(crate) fn check_private_data(verb: &'static str, data: &[u8], limit: usize) -> Result<()> {
    if data.len() <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        verb,
        format!("{} bytes of private data", data.len()),
    )
    .with_hint(format!(
        "at most {limit} fit here: send the rest as a message once connected"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_may_fill_the_message_and_not_more() {
        for transport in [TransportType::IB, TransportType::IWARP] {
            let limit = PrivateDataLimits::of(transport).request;
            let data = vec![0; limit + 1];
            let params = |len| ConnectParams {
                private_data: &data[..len],
                ..Default::default()
            };
            assert!(params(limit).check("rdma_connect", limit).is_ok());
            let error = params(limit + 1)
                .check("rdma_connect", limit)
                .expect_err("one too many");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert_eq!(
                error.to_string(),
                format!(
                    "rdma_connect: {} bytes of private data (at most {limit} fit here: send the rest as a message once connected)",
                    limit + 1
                )
            );
        }
    }

    #[test]
    fn limits_fit_the_length_byte_of_c() {
        for transport in [TransportType::IB, TransportType::IWARP, TransportType(77)] {
            let limits = PrivateDataLimits::of(transport);
            assert!(u8::try_from(limits.request.max(limits.reply).max(limits.reject)).is_ok());
        }
    }

    #[test]
    fn counts_beyond_their_bits_are_refused() {
        for params in [
            ConnectParams {
                retry_count: 8,
                ..Default::default()
            },
            ConnectParams {
                rnr_retry_count: 8,
                ..Default::default()
            },
            ConnectParams {
                min_rnr_timer: 32,
                ..Default::default()
            },
        ] {
            assert!(params.check("rdma_connect", 56).is_err(), "{params:?}");
        }
        assert!(ConnectParams::default().check("rdma_connect", 56).is_ok());
    }
}
