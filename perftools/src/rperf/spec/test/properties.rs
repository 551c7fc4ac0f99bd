//! What a test does and needs.

use super::id::Test;
use super::table::{TESTS, What};
use crate::rperf::spec::plan::{Plan, Service};
use crate::rperf::spec::socket_kind::SocketKind;

impl Test {
    fn what(self) -> What {
        TESTS
            .iter()
            .find(|t| t.0 == self)
            .map_or(What::Words, |t| t.3)
    }

    /// What it does on an RDMA device; none for those that use no device.
    pub fn plan(self) -> Option<Plan> {
        match self.what() {
            What::Rdma(plan) => Some(plan),
            _ => None,
        }
    }

    /// What carries the messages of a test over sockets.
    pub fn socket(self) -> Option<SocketKind> {
        match self.what() {
            What::Sockets { kind, .. } => Some(kind),
            _ => None,
        }
    }

    /// True where messages are counted by time of flight, not by volume.
    pub fn is_latency(self) -> bool {
        match self.what() {
            What::Rdma(plan) => plan.is_latency(),
            What::Sockets { latency, .. } => latency,
            What::Words => false,
        }
    }

    /// True where messages may be lost, so that what was sent is a figure of its own.
    pub fn may_lose(self) -> bool {
        match self.what() {
            What::Rdma(plan) => !plan.service.is_reliable(),
            What::Sockets { kind, .. } => kind == SocketKind::Udp,
            What::Words => false,
        }
    }

    /// True where data moves between the two ends.
    pub fn moves_data(self) -> bool {
        !matches!(self.what(), What::Words)
    }

    /// True where each result is checked without being asked for.
    pub fn verifies(self) -> bool {
        matches!(self, Test::VerRcCompareSwap | Test::VerRcFetchAdd)
    }

    /// The message size where none is asked for, as qperf's: 64 KiB for bandwidth (UDP and SCTP 32,
    /// RDS 8, UD 2), one byte for latency; an atomic has 8 bytes.
    pub fn default_size(self) -> u64 {
        match self.what() {
            What::Rdma(plan) if plan.verb.is_atomic() => 8,
            _ if self.is_latency() => 1,
            What::Rdma(plan) if plan.service == Service::Ud => 2 << 10,
            What::Sockets {
                kind: SocketKind::Udp | SocketKind::Sctp,
                ..
            } => 32 << 10,
            What::Sockets {
                kind: SocketKind::Rds,
                ..
            } => 8 << 10,
            _ => 64 << 10,
        }
    }
}
