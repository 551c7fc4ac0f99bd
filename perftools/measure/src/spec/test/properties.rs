//! Properties of the tests.

use super::table::{TESTS, Test, TestKind, TestRow};
use crate::spec::plan::{Pattern, Plan, Service, Verb};
use crate::spec::socket_kind::SocketKind;

impl Test {
    /// Returns the row of the table. Rows and variants come from the same list.
    pub(super) fn row(self) -> &'static TestRow {
        &TESTS[self as usize]
    }

    fn kind(self) -> TestKind {
        self.row().kind
    }

    /// Returns the RDMA operations of the test; `None` if it uses no RDMA device.
    pub fn plan(self) -> Option<Plan> {
        match self.kind() {
            TestKind::Rdma { plan, .. } => Some(plan),
            _ => None,
        }
    }

    /// Returns the protocol of a test over sockets.
    pub fn socket(self) -> Option<SocketKind> {
        match self.kind() {
            TestKind::Sockets { kind, .. } => Some(kind),
            _ => None,
        }
    }

    /// Returns `true` if the test measures latency instead of bandwidth.
    pub fn is_latency(self) -> bool {
        match self.kind() {
            TestKind::Rdma { plan, .. } => plan.is_latency(),
            TestKind::Sockets { latency, .. } => latency,
            TestKind::Control => false,
        }
    }

    /// Returns `true` if one end only sends data and the other only receives it.
    pub fn is_one_way(self) -> bool {
        match self.kind() {
            TestKind::Rdma { plan, .. } => plan.pattern == Pattern::OneWay,
            TestKind::Sockets { latency, .. } => !latency,
            TestKind::Control => false,
        }
    }

    /// Returns `true` if messages may be lost, so that the sent bandwidth is reported separately.
    pub fn may_lose(self) -> bool {
        match self.kind() {
            TestKind::Rdma { plan, .. } => !plan.service.is_reliable(),
            TestKind::Sockets { kind, .. } => kind == SocketKind::Udp,
            TestKind::Control => false,
        }
    }

    /// Returns `true` if the test transfers data between the two ends.
    pub fn moves_data(self) -> bool {
        !matches!(self.kind(), TestKind::Control)
    }

    /// Returns `true` if the test checks each result even without `--verify`.
    pub fn verifies(self) -> bool {
        matches!(self.kind(), TestKind::Rdma { verifies: true, .. })
    }

    /// Returns the default message size in bytes, which is the one of qperf: 64 KiB for bandwidth
    /// (UDP and SCTP 32 KiB, RDS 8 KiB, UD 2 KiB), 1 byte for latency, 8 bytes for atomics. A send
    /// over SRD is one packet: 4 KiB, the largest MTU of the verbs.
    pub fn default_size(self) -> u64 {
        match self.kind() {
            TestKind::Rdma { plan, .. } if plan.verb.is_atomic() => 8,
            _ if self.is_latency() => 1,
            TestKind::Rdma { plan, .. } if plan.service == Service::Ud => 2 << 10,
            TestKind::Rdma { plan, .. }
                if plan.service == Service::Srd && plan.verb == Verb::Send =>
            {
                4 << 10
            }
            TestKind::Sockets {
                kind: SocketKind::Udp | SocketKind::Sctp,
                ..
            } => 32 << 10,
            TestKind::Sockets {
                kind: SocketKind::Rds,
                ..
            } => 8 << 10,
            _ => 64 << 10,
        }
    }
}
