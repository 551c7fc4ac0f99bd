//! Properties of devices that memory safety depends on.

use super::list::{Device, TransportType};

/// Guarantees of a device about its requests and the memory they use. ci/DRIVERS.md has the
/// evidence for each property and device.
///
/// The IBTA specification guarantees all of them. iWARP and EFA, whose transport is unspecified,
/// guarantee few. Of a transport that is not named, nothing is assumed about sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
pub(crate) struct DeviceProperties {
    /// The requests of a send queue complete in the order in which they were posted, so a
    /// completion also proves that all earlier requests have completed (IBA 10.8.5).
    ///
    /// Soft-iWARP completes a WRITE or SEND before an earlier READ.
    pub(crate) completes_sends_in_order: bool,
    /// The device no longer reads the memory of an unsignaled request when a later request
    /// completes.
    ///
    /// Soft-iWARP lets TCP transmit large unsignaled requests directly from their pages, long
    /// after their completion. It copies the data of signaled requests.
    pub(crate) finishes_unsignaled: bool,
    /// A completion proves that all earlier unsignaled requests have left the send queue. The
    /// device may nevertheless still read their memory (`finishes_unsignaled`).
    ///
    /// Soft-iWARP takes requests from the queue in order. Only READs complete later.
    pub(crate) frees_unsignaled: bool,
    /// After a queue pair was destroyed and the memory deregistered, the device does not read
    /// memory that the peer was reading.
    ///
    /// Soft-iWARP lets TCP transmit large READ responses directly from the pages. TCP holds
    /// references to the pages, so they are not used for other memory before it is done.
    pub(crate) finishes_read_responses: bool,
    /// A completion queue can be polled although it contains completions of queue pairs that were
    /// destroyed.
    ///
    /// The provider of EFA consumes such an entry and reports an error (fault 53).
    pub(crate) polls_past_destroyed: bool,
    /// A receive request without memory completes.
    ///
    /// The provider of EFA keeps such a request from the adapter.
    pub(crate) completes_empty_receives: bool,
}

impl DeviceProperties {
    pub(crate) fn of(device: &Device) -> Self {
        let transport = device.transport();
        let follows_ibta = transport == TransportType::IB;
        Self {
            completes_sends_in_order: follows_ibta,
            finishes_unsignaled: follows_ibta,
            frees_unsignaled: follows_ibta || transport == TransportType::IWARP,
            finishes_read_responses: follows_ibta,
            polls_past_destroyed: true,
            completes_empty_receives: true,
        }
    }

    /// Returns the properties of EFA, whose transport is unspecified.
    pub(crate) fn of_efa() -> Self {
        Self {
            completes_sends_in_order: false,
            finishes_unsignaled: false,
            frees_unsignaled: false,
            finishes_read_responses: true,
            polls_past_destroyed: false,
            completes_empty_receives: false,
        }
    }
}
