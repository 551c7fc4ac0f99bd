//! Properties of devices that memory safety depends on.
//!
//! A property is granted to a provider by its row in [`PROVIDERS`], with the evidence in
//! docs/drivers.md. A provider without a row has none, and gets the rules of [`STRICTEST`], which
//! are sound for every provider of rdma-core 65.

use bitflags::bitflags;

use super::list::TransportType;

/// Guarantees of a device about its requests and the memory they use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "independent properties")]
pub(crate) struct DeviceProperties {
    /// A completion proves that all earlier requests of the send queue have completed (IBA 10.8.5),
    /// and that the device no longer reads their memory, also if they were unsignaled.
    ///
    /// Soft-iWARP completes a WRITE or SEND before an earlier READ. And it lets TCP transmit large
    /// unsignaled requests directly from their pages, long after their completion. It copies the
    /// data of signaled requests.
    pub(crate) finishes_in_order: bool,
    /// A completion proves that all earlier unsignaled requests have left the send queue. The
    /// device may nevertheless still read their memory (`finishes_in_order`).
    ///
    /// Soft-iWARP takes requests from the queue in order. Only READs complete later.
    pub(crate) frees_unsignaled: bool,
    /// After a queue pair was destroyed and the memory deregistered, the device does not read
    /// memory that the peer was reading.
    ///
    /// Soft-iWARP lets TCP transmit large READ responses directly from the pages. TCP holds
    /// references to the pages, so they are not used for other memory before it is done.
    pub(crate) finishes_read_responses: bool,
    /// The device does not access the memory of a request after its completion, also if that is a
    /// failure.
    ///
    /// Several providers complete the rest of a queue in software when the first request failed.
    /// Those of cxgb4 and mana do it while the connection can still place data.
    pub(crate) stops_before_failures: bool,
    /// Completions of queue pairs that were destroyed.
    pub(crate) left_completions: LeftCompletions,
    /// The uses of the provider that the library avoids.
    pub(crate) avoided: Avoided,
}

bitflags! {
    /// Uses of a provider that the library avoids, because the provider's code makes them unsafe:
    /// it copies to or from addresses with the processor, follows freed memory, or writes outside
    /// of its own. The evidence is in docs/drivers.md, "What is avoided".
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) struct Avoided: u32 {
        /// Shared receive queues.
        const SHARED_RECEIVES = 1;
        /// Inline data.
        const INLINE = 1 << 1;
        /// Inline data of datagrams.
        const INLINE_UD = 1 << 2;
        /// Inline data of extended reliable connections.
        const INLINE_XRC = 1 << 3;
        /// Receives without memory.
        const EMPTY_RECEIVES = 1 << 4;
        /// Posting with `ibv_wr_*` where `ibv_post_send` exists.
        const EXTENDED_SENDS = 1 << 5;
        /// Changing the depth of completion queues.
        const CQ_RESIZE = 1 << 6;
        /// Letting the provider see asynchronous events.
        const EVENTS = 1 << 7;
        /// Copies from and to device memory.
        const DM_COPIES = 1 << 8;
        /// Requests with addresses that this process does not have.
        const DEVICE_ADDRESSES = 1 << 9;
        /// Raw packets at such addresses.
        const RAW_DEVICE_ADDRESSES = 1 << 10;
        /// Letting libmlx5 copy short messages to the memory of a queue pair with such addresses,
        /// or of a shared receive queue ("scatter to CQE").
        const SCATTER_TO_CQE = 1 << 11;
    }
}

/// The completions of a queue pair that were not polled when it is destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeftCompletions {
    /// They have the `wr_id` of their own requests, or the provider removes them before the number
    /// of the queue pair can be used again.
    Harmless,
    /// The provider looks up the queue pair by number. It removes the completions, but only after
    /// the kernel can give the number to another queue pair. So creating and destroying queue pairs
    /// must exclude each other.
    RemovedLate,
    /// The provider looks up the queue pair by number when it polls, and leaves the completions
    /// in the queue. So the number must not be used again, and a queue pair that has it by accident
    /// must be destroyed before the next poll.
    Found,
    /// Polling them can follow freed memory, or use another queue pair's requests. So a queue pair
    /// must have none when it is destroyed.
    Dangerous,
}

bitflags! {
    /// Properties that are granted to a provider.
    #[derive(Clone, Copy, Debug)]
    struct Granted: u8 {
        /// With the InfiniBand transport, the device follows the IBTA specification: it completes
        /// sends in order and is done with unsignaled requests then.
        const FOLLOWS_IBTA = 1;
        /// See [`DeviceProperties::stops_before_failures`].
        const STOPS_BEFORE_FAILURES = 2;
    }
}

const NONE: Granted = Granted::empty();
const IBTA: Granted = Granted::FOLLOWS_IBTA;
const STOPS: Granted = Granted::STOPS_BEFORE_FAILURES;
const BOTH: Granted = Granted::all();

/// A row of the table.
#[derive(Clone, Copy, Debug)]
struct Provider {
    /// The name of the library, without `lib` and version.
    name: &'static str,
    granted: Granted,
    /// See [`DeviceProperties::left_completions`].
    left_completions: LeftCompletions,
    avoided: Avoided,
}

use LeftCompletions::{Dangerous, Found, Harmless, RemovedLate};

/// The providers of rdma-core 65. A test compares the rows with the table in docs/drivers.md.
#[rustfmt::skip]
const PROVIDERS: [Provider; 18] = [
    row("bnxt_re",    IBTA,  Harmless,    Avoided::EXTENDED_SENDS.union(Avoided::CQ_RESIZE).union(Avoided::EVENTS)),
    row("cxgb4",      NONE,  Dangerous,   Avoided::SHARED_RECEIVES.union(Avoided::INLINE)),
    row("efa",        STOPS, Found,       Avoided::EMPTY_RECEIVES),
    row("erdma",      STOPS, Dangerous,   Avoided::SHARED_RECEIVES),
    row("hfi1verbs",  IBTA,  Harmless,    Avoided::INLINE),
    row("hns",        BOTH,  RemovedLate, Avoided::DEVICE_ADDRESSES),
    row("ionic",      IBTA,  RemovedLate, Avoided::empty()),
    row("ipathverbs", IBTA,  Harmless,    Avoided::INLINE),
    row("irdma",      IBTA,  Harmless,    Avoided::SHARED_RECEIVES.union(Avoided::EMPTY_RECEIVES)),
    row("mana",       IBTA,  Dangerous,   Avoided::SHARED_RECEIVES.union(Avoided::INLINE).union(Avoided::DM_COPIES)),
    row("mlx4",       BOTH,  Harmless,    Avoided::RAW_DEVICE_ADDRESSES),
    row("mlx5",       BOTH,  Harmless,    Avoided::RAW_DEVICE_ADDRESSES.union(Avoided::SCATTER_TO_CQE)),
    row("mthca",      BOTH,  Harmless,    Avoided::empty()),
    row("ocrdma",     IBTA,  Harmless,    Avoided::INLINE_UD),
    row("qedr",       BOTH,  Dangerous,   Avoided::SHARED_RECEIVES.union(Avoided::INLINE_XRC)),
    row("rxe",        BOTH,  Harmless,    Avoided::empty()),
    row("siw",        STOPS, Harmless,    Avoided::empty()),
    row("vmw_pvrdma", IBTA,  Harmless,    Avoided::INLINE),
];

/// The properties of a provider that has no row.
const STRICTEST: Provider = row("", NONE, Dangerous, Avoided::all());

const fn row(
    name: &'static str,
    granted: Granted,
    left_completions: LeftCompletions,
    avoided: Avoided,
) -> Provider {
    Provider {
        name,
        granted,
        left_completions,
        avoided,
    }
}

impl DeviceProperties {
    /// Returns the properties of a device, whose provider may be unknown.
    pub(crate) fn of(provider: Option<&str>, transport: TransportType) -> Self {
        let row = PROVIDERS.iter().find(|row| Some(row.name) == provider);
        let row = row.unwrap_or(&STRICTEST);
        let follows_ibta = row.granted.contains(IBTA) && transport == TransportType::IB;
        let is_efa = row.name == "efa";
        Self {
            finishes_in_order: follows_ibta,
            // Only Soft-iWARP was examined.
            frees_unsignaled: follows_ibta
                || row.name == "siw" && transport == TransportType::IWARP,
            // The driver of EFA waits for the adapter when memory is deregistered.
            finishes_read_responses: follows_ibta || is_efa,
            stops_before_failures: row.granted.contains(STOPS),
            left_completions: row.left_completions,
            avoided: row.avoided,
        }
    }

    pub(crate) fn avoids(self, what: Avoided) -> bool {
        self.avoided.intersects(what)
    }

    /// Returns `true` if queue pairs are not created while one is destroyed.
    pub(crate) fn numbers_take_turns(self) -> bool {
        matches!(self.left_completions, RemovedLate | Found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn yes(value: bool) -> &'static str {
        if value { "yes" } else { "**no**" }
    }

    #[test]
    #[cfg_attr(miri, ignore = "compares texts of a document, which takes minutes")]
    fn the_book_has_the_row_of_each_provider() {
        let book = include_str!("../../../docs/drivers.md");
        let rows: Vec<&str> = book.lines().filter(|line| line.starts_with("| ")).collect();
        for row in PROVIDERS {
            let left = match row.left_completions {
                Harmless => "harmless",
                RemovedLate => "removed late",
                Found => "**found**",
                Dangerous => "**dangerous**",
            };
            let (ibta, stops) = (
                yes(row.granted.contains(IBTA)),
                yes(row.granted.contains(STOPS)),
            );
            let name = row.name;
            let properties = format!("| {name} | {ibta} | {stops} | {left} | ");
            let avoided: Vec<&str> = row.avoided.iter_names().map(|(flag, _)| flag).collect();
            let avoided = format!("| {name} | {} | ", avoided.join(", "));
            for line in [properties, avoided] {
                assert!(
                    rows.iter().any(|text| text.starts_with(&line)),
                    "docs/drivers.md has no line {line}"
                );
            }
        }
    }

    #[test]
    fn a_provider_without_a_row_has_no_property() {
        for provider in [None, Some("usnic_verbs"), Some("")] {
            let properties = DeviceProperties::of(provider, TransportType::IB);
            assert_eq!(properties.left_completions, Dangerous);
            assert!(!properties.stops_before_failures);
            assert_eq!(properties.avoided, Avoided::all());
            assert!(!properties.finishes_in_order && !properties.frees_unsignaled);
            assert!(!properties.finishes_read_responses);
        }
    }
}
