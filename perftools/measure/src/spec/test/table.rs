//! The table of tests. [`Test`] and the properties of each test are derived from it.

use serde::{Deserialize, Serialize};

use crate::spec::plan::Pattern::{self, BothWays, OneWay, PingPong, Polled};
use crate::spec::plan::Plan;
use crate::spec::plan::Service::{self, Dc, Rc, Srd, Uc, Ud, Xrc};
use crate::spec::plan::Verb::{self, CompareSwap, FetchAdd, Read, Send, Write, WriteImm};
use crate::spec::socket_kind::SocketKind::{self, Rds, Sctp, Tcp, Udp};

/// The kind of a test.
#[derive(Clone, Copy, Debug)]
pub(super) enum TestKind {
    /// Data over an RDMA device. `verifies` is `true` if each result is checked in any case.
    Rdma { plan: Plan, verifies: bool },
    /// Data over sockets.
    Sockets { kind: SocketKind, latency: bool },
    /// No data, only messages on the control connection.
    Control,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct TestRow {
    pub(super) test: Test,
    pub(super) name: &'static str,
    doc: &'static str,
    pub(super) kind: TestKind,
}

impl TestRow {
    /// Returns the documentation comment without its space and full stop.
    pub(super) fn about(&self) -> &'static str {
        self.doc.trim().trim_end_matches('.')
    }
}

const fn rdma(service: Service, verb: Verb, pattern: Pattern) -> TestKind {
    rdma_kind(service, verb, pattern, false)
}

/// Returns the kind of a test that checks each result even without `--verify`.
const fn verified(service: Service, verb: Verb, pattern: Pattern) -> TestKind {
    rdma_kind(service, verb, pattern, true)
}

const fn rdma_kind(service: Service, verb: Verb, pattern: Pattern, verifies: bool) -> TestKind {
    let plan = Plan {
        service,
        verb,
        pattern,
    };
    TestKind::Rdma { plan, verifies }
}

const fn sockets(kind: SocketKind, pattern: Pattern) -> TestKind {
    let latency = matches!(pattern, PingPong);
    TestKind::Sockets { kind, latency }
}

macro_rules! tests {
    ($(#[doc = $doc:literal] $test:ident $name:literal => $kind:expr;)*) => {
        /// A test.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
        pub enum Test {
            $(#[doc = $doc] #[serde(rename = $name)] $test,)*
        }

        /// The rows, in the order of the variants of [`Test`].
        pub(super) const TESTS: &[TestRow] = &[
            $(TestRow { test: Test::$test, name: $name, doc: $doc, kind: $kind },)*
        ];
    };
}

// Each row is: description in `--help tests`, identifier, name, kind. An RDMA test has a transport
// service, a verb and a pattern, which determine what it reports.
tests! {
    /// RC send/receive, one-way bandwidth.
    RcBw "rc_bw" => rdma(Rc, Send, OneWay);
    /// RC send/receive, bandwidth in both directions at once.
    RcBiBw "rc_bi_bw" => rdma(Rc, Send, BothWays);
    /// RC send/receive ping-pong, one-way latency.
    RcLat "rc_lat" => rdma(Rc, Send, PingPong);
    /// UC send/receive, one-way bandwidth.
    UcBw "uc_bw" => rdma(Uc, Send, OneWay);
    /// UC send/receive, bandwidth in both directions at once.
    UcBiBw "uc_bi_bw" => rdma(Uc, Send, BothWays);
    /// UC send/receive ping-pong, one-way latency.
    UcLat "uc_lat" => rdma(Uc, Send, PingPong);
    /// UD send/receive, one-way bandwidth.
    UdBw "ud_bw" => rdma(Ud, Send, OneWay);
    /// UD send/receive, bandwidth in both directions at once.
    UdBiBw "ud_bi_bw" => rdma(Ud, Send, BothWays);
    /// UD send/receive ping-pong, one-way latency.
    UdLat "ud_lat" => rdma(Ud, Send, PingPong);
    /// XRC send/receive, one-way bandwidth.
    XrcBw "xrc_bw" => rdma(Xrc, Send, OneWay);
    /// XRC send/receive, bandwidth in both directions at once.
    XrcBiBw "xrc_bi_bw" => rdma(Xrc, Send, BothWays);
    /// XRC send/receive ping-pong, one-way latency.
    XrcLat "xrc_lat" => rdma(Xrc, Send, PingPong);
    /// RC RDMA write, one-way bandwidth.
    RcRdmaWriteBw "rc_rdma_write_bw" => rdma(Rc, WriteImm, OneWay);
    /// RC RDMA write, bandwidth in both directions at once.
    RcRdmaWriteBiBw "rc_rdma_write_bi_bw" => rdma(Rc, WriteImm, BothWays);
    /// RC RDMA write ping-pong, one-way latency.
    RcRdmaWriteLat "rc_rdma_write_lat" => rdma(Rc, WriteImm, PingPong);
    /// RC RDMA write ping-pong with memory polling, one-way latency.
    RcRdmaWritePollLat "rc_rdma_write_poll_lat" => rdma(Rc, Write, Polled);
    /// UC RDMA write, one-way bandwidth.
    UcRdmaWriteBw "uc_rdma_write_bw" => rdma(Uc, WriteImm, OneWay);
    /// UC RDMA write, bandwidth in both directions at once.
    UcRdmaWriteBiBw "uc_rdma_write_bi_bw" => rdma(Uc, WriteImm, BothWays);
    /// UC RDMA write ping-pong, one-way latency.
    UcRdmaWriteLat "uc_rdma_write_lat" => rdma(Uc, WriteImm, PingPong);
    /// UC RDMA write ping-pong with memory polling, one-way latency.
    UcRdmaWritePollLat "uc_rdma_write_poll_lat" => rdma(Uc, Write, Polled);
    /// RC RDMA read, one-way bandwidth.
    RcRdmaReadBw "rc_rdma_read_bw" => rdma(Rc, Read, OneWay);
    /// RC RDMA read, bandwidth in both directions at once.
    RcRdmaReadBiBw "rc_rdma_read_bi_bw" => rdma(Rc, Read, BothWays);
    /// RC RDMA read, round trip.
    RcRdmaReadLat "rc_rdma_read_lat" => rdma(Rc, Read, PingPong);
    /// RC compare-and-swap, messages per second.
    RcCompareSwapMr "rc_compare_swap_mr" => rdma(Rc, CompareSwap, OneWay);
    /// RC compare-and-swap, round trip.
    RcCompareSwapLat "rc_compare_swap_lat" => rdma(Rc, CompareSwap, PingPong);
    /// RC fetch-and-add, messages per second.
    RcFetchAddMr "rc_fetch_add_mr" => rdma(Rc, FetchAdd, OneWay);
    /// RC fetch-and-add, round trip.
    RcFetchAddLat "rc_fetch_add_lat" => rdma(Rc, FetchAdd, PingPong);
    /// RC compare-and-swap, each result checked.
    VerRcCompareSwap "ver_rc_compare_swap" => verified(Rc, CompareSwap, OneWay);
    /// RC fetch-and-add, each result checked.
    VerRcFetchAdd "ver_rc_fetch_add" => verified(Rc, FetchAdd, OneWay);
    /// XRC RDMA write, one-way bandwidth.
    XrcRdmaWriteBw "xrc_rdma_write_bw" => rdma(Xrc, WriteImm, OneWay);
    /// XRC RDMA write, bandwidth in both directions at once.
    XrcRdmaWriteBiBw "xrc_rdma_write_bi_bw" => rdma(Xrc, WriteImm, BothWays);
    /// XRC RDMA write ping-pong, one-way latency.
    XrcRdmaWriteLat "xrc_rdma_write_lat" => rdma(Xrc, WriteImm, PingPong);
    /// XRC RDMA write ping-pong with memory polling, one-way latency.
    XrcRdmaWritePollLat "xrc_rdma_write_poll_lat" => rdma(Xrc, Write, Polled);
    /// XRC RDMA read, one-way bandwidth.
    XrcRdmaReadBw "xrc_rdma_read_bw" => rdma(Xrc, Read, OneWay);
    /// XRC RDMA read, bandwidth in both directions at once.
    XrcRdmaReadBiBw "xrc_rdma_read_bi_bw" => rdma(Xrc, Read, BothWays);
    /// XRC RDMA read, round trip.
    XrcRdmaReadLat "xrc_rdma_read_lat" => rdma(Xrc, Read, PingPong);
    /// XRC compare-and-swap, messages per second.
    XrcCompareSwapMr "xrc_compare_swap_mr" => rdma(Xrc, CompareSwap, OneWay);
    /// XRC compare-and-swap, round trip.
    XrcCompareSwapLat "xrc_compare_swap_lat" => rdma(Xrc, CompareSwap, PingPong);
    /// XRC fetch-and-add, messages per second.
    XrcFetchAddMr "xrc_fetch_add_mr" => rdma(Xrc, FetchAdd, OneWay);
    /// XRC fetch-and-add, round trip.
    XrcFetchAddLat "xrc_fetch_add_lat" => rdma(Xrc, FetchAdd, PingPong);
    /// SRD send/receive, one-way bandwidth.
    SrdBw "srd_bw" => rdma(Srd, Send, OneWay);
    /// SRD send/receive, bandwidth in both directions at once.
    SrdBiBw "srd_bi_bw" => rdma(Srd, Send, BothWays);
    /// SRD send/receive ping-pong, one-way latency.
    SrdLat "srd_lat" => rdma(Srd, Send, PingPong);
    /// SRD RDMA write, one-way bandwidth.
    SrdRdmaWriteBw "srd_rdma_write_bw" => rdma(Srd, WriteImm, OneWay);
    /// SRD RDMA write, bandwidth in both directions at once.
    SrdRdmaWriteBiBw "srd_rdma_write_bi_bw" => rdma(Srd, WriteImm, BothWays);
    /// SRD RDMA write ping-pong, one-way latency.
    SrdRdmaWriteLat "srd_rdma_write_lat" => rdma(Srd, WriteImm, PingPong);
    /// SRD RDMA read, one-way bandwidth.
    SrdRdmaReadBw "srd_rdma_read_bw" => rdma(Srd, Read, OneWay);
    /// SRD RDMA read, bandwidth in both directions at once.
    SrdRdmaReadBiBw "srd_rdma_read_bi_bw" => rdma(Srd, Read, BothWays);
    /// SRD RDMA read, round trip.
    SrdRdmaReadLat "srd_rdma_read_lat" => rdma(Srd, Read, PingPong);
    /// DC send/receive, one-way bandwidth.
    DcBw "dc_bw" => rdma(Dc, Send, OneWay);
    /// DC send/receive, bandwidth in both directions at once.
    DcBiBw "dc_bi_bw" => rdma(Dc, Send, BothWays);
    /// DC send/receive ping-pong, one-way latency.
    DcLat "dc_lat" => rdma(Dc, Send, PingPong);
    /// DC RDMA write, one-way bandwidth.
    DcRdmaWriteBw "dc_rdma_write_bw" => rdma(Dc, WriteImm, OneWay);
    /// DC RDMA write, bandwidth in both directions at once.
    DcRdmaWriteBiBw "dc_rdma_write_bi_bw" => rdma(Dc, WriteImm, BothWays);
    /// DC RDMA write ping-pong, one-way latency.
    DcRdmaWriteLat "dc_rdma_write_lat" => rdma(Dc, WriteImm, PingPong);
    /// DC RDMA write ping-pong with memory polling, one-way latency.
    DcRdmaWritePollLat "dc_rdma_write_poll_lat" => rdma(Dc, Write, Polled);
    /// DC RDMA read, one-way bandwidth.
    DcRdmaReadBw "dc_rdma_read_bw" => rdma(Dc, Read, OneWay);
    /// DC RDMA read, bandwidth in both directions at once.
    DcRdmaReadBiBw "dc_rdma_read_bi_bw" => rdma(Dc, Read, BothWays);
    /// DC RDMA read, round trip.
    DcRdmaReadLat "dc_rdma_read_lat" => rdma(Dc, Read, PingPong);
    /// DC compare-and-swap, messages per second.
    DcCompareSwapMr "dc_compare_swap_mr" => rdma(Dc, CompareSwap, OneWay);
    /// DC compare-and-swap, round trip.
    DcCompareSwapLat "dc_compare_swap_lat" => rdma(Dc, CompareSwap, PingPong);
    /// DC fetch-and-add, messages per second.
    DcFetchAddMr "dc_fetch_add_mr" => rdma(Dc, FetchAdd, OneWay);
    /// DC fetch-and-add, round trip.
    DcFetchAddLat "dc_fetch_add_lat" => rdma(Dc, FetchAdd, PingPong);
    /// TCP, one-way bandwidth.
    TcpBw "tcp_bw" => sockets(Tcp, OneWay);
    /// TCP ping-pong, one-way latency.
    TcpLat "tcp_lat" => sockets(Tcp, PingPong);
    /// UDP, one-way bandwidth, sent and received.
    UdpBw "udp_bw" => sockets(Udp, OneWay);
    /// UDP ping-pong, one-way latency.
    UdpLat "udp_lat" => sockets(Udp, PingPong);
    /// SCTP, one-way bandwidth.
    SctpBw "sctp_bw" => sockets(Sctp, OneWay);
    /// SCTP ping-pong, one-way latency.
    SctpLat "sctp_lat" => sockets(Sctp, PingPong);
    /// RDS, one-way bandwidth.
    RdsBw "rds_bw" => sockets(Rds, OneWay);
    /// RDS ping-pong, one-way latency.
    RdsLat "rds_lat" => sockets(Rds, PingPong);
    /// Configuration of the two hosts.
    Conf "conf" => TestKind::Control;
    /// Stops the server (only from the server's host by default).
    Quit "quit" => TestKind::Control;
}

/// Tests of qperf that Linux no longer supports.
pub(super) const REMOVED: &[&str] = &["sdp_bw", "sdp_lat"];
