//! Reasons for rejected requests.

use rdma_types::c_value;

c_value! {
    /// Reason for the rejection of a connect request.
    ///
    /// On InfiniBand and RoCE it is a reason code of the communication manager (IBA 12.6.7.2,
    /// positive). On iWARP it is a negative errno value.
    ///
    /// # Example
    /// ```
    /// use rdmacm::RejectReason;
    /// assert!(RejectReason::INVALID_SERVICE_ID.has_no_listener());
    /// assert_eq!(RejectReason(28), RejectReason::CONSUMER_DEFINED); // rejected by the peer
    /// ```
    ///
    /// # References
    /// [`rdma_reject(3)`](https://man7.org/linux/man-pages/man3/rdma_reject.3.html); IBA 12.6.7.2
    #[doc(alias = "rdma_reject")]
    pub struct RejectReason(i32) {
        /// The peer has no queue pairs left.
        NO_QP = 1 => "no queue pair available",
        /// The peer has no end-to-end contexts left.
        NO_EEC = 2 => "no end-to-end context available",
        /// The peer is out of resources.
        NO_RESOURCES = 3 => "no resources available",
        /// The peer waited too long for the next message of the handshake.
        TIMEOUT = 4 => "the handshake timed out",
        /// The peer does not support the request.
        UNSUPPORTED = 5 => "unsupported request",
        /// The communication identifier is not valid.
        INVALID_COMM_ID = 6 => "invalid communication ID",
        /// The communication instance is not valid.
        INVALID_COMM_INSTANCE = 7 => "invalid communication instance",
        /// Nothing listens on the port.
        INVALID_SERVICE_ID = 8 => "nothing listens on that port",
        /// The transport type is not valid.
        INVALID_TRANSPORT_TYPE = 9 => "invalid transport type",
        /// The peer still has an old connection of this queue pair number.
        STALE_CONN = 10 => "stale connection",
        /// The reliable datagram channel does not exist.
        RDC_NOT_EXIST = 11 => "no such reliable datagram channel",
        /// The primary GID does not belong to the peer.
        INVALID_GID = 12 => "invalid GID",
        /// The primary LID does not belong to the peer.
        INVALID_LID = 13 => "invalid LID",
        /// The service level is not available.
        INVALID_SL = 14 => "invalid service level",
        /// The traffic class is not available.
        INVALID_TRAFFIC_CLASS = 15 => "invalid traffic class",
        /// The hop limit is not acceptable.
        INVALID_HOP_LIMIT = 16 => "invalid hop limit",
        /// The packet rate is not acceptable.
        INVALID_PACKET_RATE = 17 => "invalid packet rate",
        /// The alternate GID does not belong to the peer.
        INVALID_ALT_GID = 18 => "invalid alternate GID",
        /// The alternate LID does not belong to the peer.
        INVALID_ALT_LID = 19 => "invalid alternate LID",
        /// The alternate service level is not available.
        INVALID_ALT_SL = 20 => "invalid alternate service level",
        /// The alternate traffic class is not available.
        INVALID_ALT_TRAFFIC_CLASS = 21 => "invalid alternate traffic class",
        /// The alternate hop limit is not acceptable.
        INVALID_ALT_HOP_LIMIT = 22 => "invalid alternate hop limit",
        /// The alternate packet rate is not acceptable.
        INVALID_ALT_PACKET_RATE = 23 => "invalid alternate packet rate",
        /// Another port and communication manager provides this service.
        PORT_CM_REDIRECT = 24 => "port and CM redirection",
        /// Another port provides this service.
        PORT_REDIRECT = 25 => "port redirection",
        /// The path MTU is too large for the peer.
        INVALID_MTU = 26 => "invalid path MTU",
        /// More concurrent READs and atomics were requested than the peer serves.
        INSUFFICIENT_RESP_RESOURCES = 27 => "insufficient responder resources",
        /// The peer's application rejected the request or dropped it.
        CONSUMER_DEFINED = 28 => "rejected by the peer's application",
        /// The RNR retry count is not acceptable.
        INVALID_RNR_RETRY = 29 => "invalid RNR retry count",
        /// The communication identifier is in use.
        DUPLICATE_COMM_ID = 30 => "duplicate communication ID",
        /// The class version is not supported.
        INVALID_CLASS_VERSION = 31 => "invalid class version",
        /// The flow label is not acceptable.
        INVALID_FLOW_LABEL = 32 => "invalid flow label",
        /// The alternate flow label is not acceptable.
        INVALID_ALT_FLOW_LABEL = 33 => "invalid alternate flow label",
        /// A vendor-specific option is not supported.
        VENDOR_OPTION = 35 => "vendor option not supported",
        /// iWARP: the peer's application rejected the request or closed the connection during the
        /// handshake.
        IWARP_RESET = -libc::ECONNRESET => "rejected by the peer's application",
        /// iWARP: nothing listens on the port.
        IWARP_REFUSED = -libc::ECONNREFUSED => "nothing listens on that port",
    }
}

impl RejectReason {
    /// Returns `true` if nothing listens on the port.
    pub fn has_no_listener(self) -> bool {
        matches!(self, Self::INVALID_SERVICE_ID | Self::IWARP_REFUSED)
    }

    /// Returns `true` if the peer's application rejected or dropped the request.
    pub fn is_by_application(self) -> bool {
        matches!(self, Self::CONSUMER_DEFINED | Self::IWARP_RESET)
    }

    /// Converts the status of a service ID resolution (IBA 16.7.2) to the corresponding reason.
    pub(crate) fn from_service_status(status: i32) -> Self {
        match status {
            1 => Self::INVALID_SERVICE_ID,
            2 => Self::CONSUMER_DEFINED,
            3 => Self::NO_QP,
            4 => Self::PORT_CM_REDIRECT,
            5 => Self::INVALID_CLASS_VERSION,
            other => Self(other),
        }
    }

    /// Returns the remedy.
    pub(crate) fn help(self) -> Option<&'static str> {
        Some(match self {
            Self::INVALID_SERVICE_ID | Self::IWARP_REFUSED => {
                "check that the server is running, on this port and with rdma_cm rather than plain TCP"
            }
            Self::CONSUMER_DEFINED => "the peer gave no reason; check its output",
            Self::IWARP_RESET => {
                "the peer gave no reason; check its output, and that the server is not a plain TCP server"
            }
            Self::STALE_CONN | Self::DUPLICATE_COMM_ID => {
                "try again; the peer still has an older connection"
            }
            Self::INSUFFICIENT_RESP_RESOURCES => "set initiator_depth lower",
            Self::NO_QP | Self::NO_EEC | Self::NO_RESOURCES => {
                "close other connections of the peer"
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_reasons_are_shown_as_numbers() {
        assert_eq!(RejectReason(8).to_string(), "nothing listens on that port");
        assert_eq!(
            RejectReason(28).to_string(),
            "rejected by the peer's application"
        );
        assert_eq!(RejectReason(34).to_string(), "unknown (34)");
        assert_eq!(RejectReason(-5).to_string(), "unknown (-5)");
    }

    #[test]
    fn service_statuses_map_to_reject_reasons() {
        assert!(RejectReason::from_service_status(1).has_no_listener());
        assert!(RejectReason::from_service_status(2).is_by_application());
    }

    #[test]
    fn no_listener_differs_from_a_rejection() {
        assert!(RejectReason(8).has_no_listener() && RejectReason(-111).has_no_listener());
        assert!(RejectReason(28).is_by_application() && RejectReason(-104).is_by_application());
        assert!(!RejectReason(8).is_by_application() && !RejectReason(28).has_no_listener());
    }
}
