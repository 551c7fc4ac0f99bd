//! Limits of the private data in connection manager messages.

use ibverbs::{Error, ErrorKind, Result, device::TransportType};

/// Maximum number of private data bytes in each message of a connection handshake or of a datagram
/// service resolution.
///
/// # Example
/// ```
/// use ibverbs::device::TransportType;
/// use rdmacm::PrivateDataLimits;
/// let limits = PrivateDataLimits::new(TransportType::IB);
/// assert_eq!(
///     (limits.request, limits.reply, limits.reject),
///     (56, 196, 148)
/// ); // bytes
/// ```
///
/// # References
/// [`rdma_connect(3)`](https://man7.org/linux/man-pages/man3/rdma_connect.3.html); IBA 12.6
#[doc(alias = "rdma_connect")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PrivateDataLimits {
    /// Bytes in a request: [`ReadyRoute::connect`](crate::ReadyRoute::connect),
    /// [`DatagramRoute::query`](crate::datagram::DatagramRoute::query).
    pub request: usize,
    /// Bytes in an acceptance: [`ReadyRequest::accept`](crate::ReadyRequest::accept),
    /// [`ServiceRequest::accept`](crate::datagram::ServiceRequest::accept).
    pub reply: usize,
    /// Bytes in a rejection: [`ConnectRequest::reject`](crate::ConnectRequest::reject),
    /// [`ServiceRequest::reject`](crate::datagram::ServiceRequest::reject).
    pub reject: usize,
}

impl PrivateDataLimits {
    /// Limits of InfiniBand connections between `AF_IB` addresses, where no bytes are reserved for
    /// IP addresses.
    pub const AF_IB: Self = Self {
        request: REQ_LEN,
        reply: 196,
        reject: 148,
    };

    /// Limits of datagram service resolution (216 bytes in a SIDR_REQ, 136 in a SIDR_REP).
    ///
    /// The peer always receives the full length, padded with zeros.
    pub const DATAGRAM: Self = Self {
        request: 216 - IP_ADDRESSES_LEN,
        reply: 136,
        reject: 136,
    };

    /// Returns the limits of connections between IP addresses on `transport`.
    ///
    /// On InfiniBand and RoCE the peer always receives the full length, padded with zeros. On iWARP
    /// it receives exactly the bytes that were sent.
    pub const fn new(transport: TransportType) -> Self {
        match transport {
            // An MPA frame holds 512 bytes (RFC 5044). Linux allows 256 and uses up to 5 of them.
            TransportType::IWARP => Self {
                request: 251,
                reply: 251,
                reject: 251,
            },
            _ => Self {
                request: REQ_LEN - IP_ADDRESSES_LEN,
                ..Self::AF_IB
            },
        }
    }
}

/// Private data of an InfiniBand connect request (REQ), in bytes.
const REQ_LEN: usize = 92;

/// Private data bytes that the IP addresses of a request occupy (IBA annex A11).
const IP_ADDRESSES_LEN: usize = 36;

/// Rejects private data longer than `limit` bytes.
pub(crate) fn check_private_data(verb: &'static str, data: &[u8], limit: usize) -> Result<()> {
    if data.len() <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidInput,
        verb,
        format!("{} bytes of private data", data.len()),
    )
    .with_help(format!(
        "use at most {limit} bytes, and send the rest as a message once connected"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_data_is_limited_to_the_message() {
        for transport in [TransportType::IB, TransportType::IWARP] {
            let limit = PrivateDataLimits::new(transport).request;
            let data = vec![0; limit + 1];
            assert!(check_private_data("rdma_connect", &data[..limit], limit).is_ok());
            let error =
                check_private_data("rdma_connect", &data, limit).expect_err("one byte too long");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            let text = error.to_string();
            assert!(
                text.contains(&format!("{} bytes of private data", limit + 1)),
                "{text}"
            );
            assert!(text.contains(&format!("at most {limit} bytes")), "{text}");
        }
    }

    #[test]
    fn limits_fit_into_the_length_byte_of_c() {
        for transport in [TransportType::IB, TransportType::IWARP, TransportType(77)] {
            let limits = PrivateDataLimits::new(transport);
            assert!(u8::try_from(limits.request.max(limits.reply).max(limits.reject)).is_ok());
        }
    }
}
