//! Faults of the network that a test orders.

use crate::network::packet::{self, Packet, status};

/// A fault that happens to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The packet is lost.
    Drop,
    /// The packet arrives twice.
    Duplicate,
    /// The packet arrives after this number of nanoseconds.
    Delay(u64),
    /// The packet arrives after the next one.
    Reorder,
    /// The first byte of the payload is inverted.
    Corrupt,
    /// The request is not executed, and the requester gets this answer.
    Nak(Nak),
}

/// A negative acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Nak {
    /// The receiver has no receive request.
    ReceiverNotReady,
    /// The request is malformed.
    InvalidRequest,
    /// The request has no right to access the memory.
    RemoteAccess,
    /// The receiver failed.
    RemoteOperation,
}

/// A fault with the packets that it applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultRule {
    fault: Fault,
    skip: u64,
    count: u64,
    responses: bool,
}

impl FaultRule {
    /// Applies `fault` to the next request.
    pub const fn new(fault: Fault) -> Self {
        Self {
            fault,
            skip: 0,
            count: 1,
            responses: false,
        }
    }

    /// Lets this number of packets pass before the fault. Default: `0`.
    #[must_use]
    pub const fn after(mut self, packets: u64) -> Self {
        self.skip = packets;
        self
    }

    /// Applies the fault to this number of packets. Default: `1`.
    #[must_use]
    pub const fn times(mut self, packets: u64) -> Self {
        self.count = packets;
        self
    }

    /// Applies the fault to responses instead of requests.
    #[must_use]
    pub const fn on_responses(mut self) -> Self {
        self.responses = true;
        self
    }

    fn matches(&self, packet: &Packet) -> bool {
        self.responses == (packet.header.kind == packet::RESPONSE)
    }
}

/// The effect of the faults on a packet.
pub(crate) enum Treatment {
    Now(Packet),
    After(u64, Packet),
}

#[derive(Default)]
pub(crate) struct Faults {
    rules: Vec<FaultRule>,
    /// A packet that waits for the next one.
    overtaken: Option<Packet>,
}

impl Faults {
    pub(crate) fn add(&mut self, rule: FaultRule) {
        self.rules.push(rule);
    }

    /// Returns the first fault that applies to a packet, and counts it.
    fn next(&mut self, packet: &Packet) -> Option<Fault> {
        let rule = self.rules.iter_mut().find(|rule| rule.matches(packet))?;
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let fault = rule.fault;
        rule.count = rule.count.saturating_sub(1);
        self.rules.retain(|rule| rule.count > 0);
        Some(fault)
    }

    pub(crate) fn treat(&mut self, mut packet: Packet) -> Vec<Treatment> {
        if self.rules.is_empty() && self.overtaken.is_none() {
            return vec![Treatment::Now(packet)];
        }
        let earlier = self.overtaken.take().map(Treatment::Now);
        let mut result = match self.next(&packet) {
            None => vec![Treatment::Now(packet)],
            Some(Fault::Drop) => Vec::new(),
            Some(Fault::Duplicate) => vec![Treatment::Now(packet.clone()), Treatment::Now(packet)],
            Some(Fault::Delay(nanoseconds)) => vec![Treatment::After(nanoseconds, packet)],
            Some(Fault::Reorder) => {
                self.overtaken = Some(packet);
                Vec::new()
            }
            Some(Fault::Corrupt) => {
                if let Some(byte) = packet.payload.first_mut() {
                    *byte = !*byte;
                }
                vec![Treatment::Now(packet)]
            }
            Some(Fault::Nak(nak)) => vec![Treatment::Now(negative(&packet, nak))],
        };
        result.extend(earlier);
        result
    }
}

/// Returns the answer to a request that is refused.
fn negative(request: &Packet, nak: Nak) -> Packet {
    let mut header = packet::Header {
        kind: packet::RESPONSE,
        source: request.header.destination,
        destination: request.header.source,
        psn: request.header.psn,
        ..packet::Header::default()
    };
    header.status = match nak {
        Nak::ReceiverNotReady => {
            // Nanoseconds.
            header.length = 10_000;
            status::RNR
        }
        Nak::InvalidRequest => status::INVALID,
        Nak::RemoteAccess => status::ACCESS,
        Nak::RemoteOperation => status::OPERATION,
    };
    Packet {
        header,
        payload: Vec::new(),
    }
}
