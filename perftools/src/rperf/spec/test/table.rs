//! The table of tests, with names, descriptions and kinds.

use super::id::Test;
use crate::rperf::spec::plan::Pattern::{self, BothWays, OneWay, PingPong, Polled};
use crate::rperf::spec::plan::Plan;
use crate::rperf::spec::plan::Service::{self, Rc, Uc, Ud, Xrc};
use crate::rperf::spec::plan::Verb::{self, CompareSwap, FetchAdd, Read, Send, Write, WriteImm};
use crate::rperf::spec::socket_kind::SocketKind;

/// The kind of a test.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Data over an RDMA device.
    Rdma(Plan),
    /// Data over sockets.
    Sockets { kind: SocketKind, latency: bool },
    /// No data, only messages on the control connection.
    Control,
}

const fn rdma(service: Service, verb: Verb, pattern: Pattern) -> Kind {
    Kind::Rdma(Plan {
        service,
        verb,
        pattern,
    })
}

/// Each test with its name, its description in `--help tests`, and its kind.
pub(super) const TESTS: &[(Test, &str, &str, Kind)] = &[
    (
        Test::RcBw,
        "rc_bw",
        "RC send/receive, one-way bandwidth",
        rdma(Rc, Send, OneWay),
    ),
    (
        Test::RcBiBw,
        "rc_bi_bw",
        "RC send/receive, bandwidth in both directions at once",
        rdma(Rc, Send, BothWays),
    ),
    (
        Test::RcLat,
        "rc_lat",
        "RC send/receive ping-pong, one-way latency",
        rdma(Rc, Send, PingPong),
    ),
    (
        Test::UcBw,
        "uc_bw",
        "UC send/receive, one-way bandwidth",
        rdma(Uc, Send, OneWay),
    ),
    (
        Test::UcBiBw,
        "uc_bi_bw",
        "UC send/receive, bandwidth in both directions at once",
        rdma(Uc, Send, BothWays),
    ),
    (
        Test::UcLat,
        "uc_lat",
        "UC send/receive ping-pong, one-way latency",
        rdma(Uc, Send, PingPong),
    ),
    (
        Test::UdBw,
        "ud_bw",
        "UD send/receive, one-way bandwidth",
        rdma(Ud, Send, OneWay),
    ),
    (
        Test::UdBiBw,
        "ud_bi_bw",
        "UD send/receive, bandwidth in both directions at once",
        rdma(Ud, Send, BothWays),
    ),
    (
        Test::UdLat,
        "ud_lat",
        "UD send/receive ping-pong, one-way latency",
        rdma(Ud, Send, PingPong),
    ),
    (
        Test::XrcBw,
        "xrc_bw",
        "XRC send/receive, one-way bandwidth",
        rdma(Xrc, Send, OneWay),
    ),
    (
        Test::XrcBiBw,
        "xrc_bi_bw",
        "XRC send/receive, bandwidth in both directions at once",
        rdma(Xrc, Send, BothWays),
    ),
    (
        Test::XrcLat,
        "xrc_lat",
        "XRC send/receive ping-pong, one-way latency",
        rdma(Xrc, Send, PingPong),
    ),
    (
        Test::RcRdmaWriteBw,
        "rc_rdma_write_bw",
        "RC RDMA write, one-way bandwidth",
        rdma(Rc, WriteImm, OneWay),
    ),
    (
        Test::RcRdmaWriteBiBw,
        "rc_rdma_write_bi_bw",
        "RC RDMA write, bandwidth in both directions at once",
        rdma(Rc, WriteImm, BothWays),
    ),
    (
        Test::RcRdmaWriteLat,
        "rc_rdma_write_lat",
        "RC RDMA write ping-pong, one-way latency",
        rdma(Rc, WriteImm, PingPong),
    ),
    (
        Test::RcRdmaWritePollLat,
        "rc_rdma_write_poll_lat",
        "RC RDMA write ping-pong with memory polling, one-way latency",
        rdma(Rc, Write, Polled),
    ),
    (
        Test::UcRdmaWriteBw,
        "uc_rdma_write_bw",
        "UC RDMA write, one-way bandwidth",
        rdma(Uc, WriteImm, OneWay),
    ),
    (
        Test::UcRdmaWriteBiBw,
        "uc_rdma_write_bi_bw",
        "UC RDMA write, bandwidth in both directions at once",
        rdma(Uc, WriteImm, BothWays),
    ),
    (
        Test::UcRdmaWriteLat,
        "uc_rdma_write_lat",
        "UC RDMA write ping-pong, one-way latency",
        rdma(Uc, WriteImm, PingPong),
    ),
    (
        Test::UcRdmaWritePollLat,
        "uc_rdma_write_poll_lat",
        "UC RDMA write ping-pong with memory polling, one-way latency",
        rdma(Uc, Write, Polled),
    ),
    (
        Test::RcRdmaReadBw,
        "rc_rdma_read_bw",
        "RC RDMA read, one-way bandwidth",
        rdma(Rc, Read, OneWay),
    ),
    (
        Test::RcRdmaReadBiBw,
        "rc_rdma_read_bi_bw",
        "RC RDMA read, bandwidth in both directions at once",
        rdma(Rc, Read, BothWays),
    ),
    (
        Test::RcRdmaReadLat,
        "rc_rdma_read_lat",
        "RC RDMA read, round trip",
        rdma(Rc, Read, PingPong),
    ),
    (
        Test::RcCompareSwapMr,
        "rc_compare_swap_mr",
        "RC compare-and-swap, messages per second",
        rdma(Rc, CompareSwap, OneWay),
    ),
    (
        Test::RcCompareSwapLat,
        "rc_compare_swap_lat",
        "RC compare-and-swap, round trip",
        rdma(Rc, CompareSwap, PingPong),
    ),
    (
        Test::RcFetchAddMr,
        "rc_fetch_add_mr",
        "RC fetch-and-add, messages per second",
        rdma(Rc, FetchAdd, OneWay),
    ),
    (
        Test::RcFetchAddLat,
        "rc_fetch_add_lat",
        "RC fetch-and-add, round trip",
        rdma(Rc, FetchAdd, PingPong),
    ),
    (
        Test::VerRcCompareSwap,
        "ver_rc_compare_swap",
        "RC compare-and-swap, each result checked",
        rdma(Rc, CompareSwap, OneWay),
    ),
    (
        Test::VerRcFetchAdd,
        "ver_rc_fetch_add",
        "RC fetch-and-add, each result checked",
        rdma(Rc, FetchAdd, OneWay),
    ),
    (
        Test::TcpBw,
        "tcp_bw",
        "TCP, one-way bandwidth",
        Kind::Sockets {
            kind: SocketKind::Tcp,
            latency: false,
        },
    ),
    (
        Test::TcpLat,
        "tcp_lat",
        "TCP ping-pong, one-way latency",
        Kind::Sockets {
            kind: SocketKind::Tcp,
            latency: true,
        },
    ),
    (
        Test::UdpBw,
        "udp_bw",
        "UDP, one-way bandwidth, sent and received",
        Kind::Sockets {
            kind: SocketKind::Udp,
            latency: false,
        },
    ),
    (
        Test::UdpLat,
        "udp_lat",
        "UDP ping-pong, one-way latency",
        Kind::Sockets {
            kind: SocketKind::Udp,
            latency: true,
        },
    ),
    (
        Test::SctpBw,
        "sctp_bw",
        "SCTP, one-way bandwidth",
        Kind::Sockets {
            kind: SocketKind::Sctp,
            latency: false,
        },
    ),
    (
        Test::SctpLat,
        "sctp_lat",
        "SCTP ping-pong, one-way latency",
        Kind::Sockets {
            kind: SocketKind::Sctp,
            latency: true,
        },
    ),
    (
        Test::RdsBw,
        "rds_bw",
        "RDS, one-way bandwidth",
        Kind::Sockets {
            kind: SocketKind::Rds,
            latency: false,
        },
    ),
    (
        Test::RdsLat,
        "rds_lat",
        "RDS ping-pong, one-way latency",
        Kind::Sockets {
            kind: SocketKind::Rds,
            latency: true,
        },
    ),
    (
        Test::Conf,
        "conf",
        "configuration of the two hosts",
        Kind::Control,
    ),
    (
        Test::Quit,
        "quit",
        "stop the server (only from its own host by default)",
        Kind::Control,
    ),
];

/// Tests of qperf that Linux no longer supports.
pub(super) const REMOVED: &[&str] = &["sdp_bw", "sdp_lat"];
