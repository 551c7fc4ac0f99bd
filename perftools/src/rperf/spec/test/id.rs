//! The identifiers of the tests.

use serde::{Deserialize, Serialize};

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// RC send/receive, one-way bandwidth.
    RcBw,
    /// RC send/receive, bandwidth in both directions at once.
    RcBiBw,
    /// RC send/receive ping-pong, one-way latency.
    RcLat,
    /// UC send/receive, one-way bandwidth.
    UcBw,
    /// UC send/receive, bandwidth in both directions at once.
    UcBiBw,
    /// UC send/receive ping-pong, one-way latency.
    UcLat,
    /// UD send/receive, one-way bandwidth.
    UdBw,
    /// UD send/receive, bandwidth in both directions at once.
    UdBiBw,
    /// UD send/receive ping-pong, one-way latency.
    UdLat,
    /// XRC send/receive, one-way bandwidth.
    XrcBw,
    /// XRC send/receive, bandwidth in both directions at once.
    XrcBiBw,
    /// XRC send/receive ping-pong, one-way latency.
    XrcLat,
    /// RC RDMA write, one-way bandwidth.
    RcRdmaWriteBw,
    /// RC RDMA write, bandwidth in both directions at once.
    RcRdmaWriteBiBw,
    /// RC RDMA write ping-pong, one-way latency.
    RcRdmaWriteLat,
    /// RC RDMA write ping-pong with memory polling, one-way latency.
    RcRdmaWritePollLat,
    /// UC RDMA write, one-way bandwidth.
    UcRdmaWriteBw,
    /// UC RDMA write, bandwidth in both directions at once.
    UcRdmaWriteBiBw,
    /// UC RDMA write ping-pong, one-way latency.
    UcRdmaWriteLat,
    /// UC RDMA write ping-pong with memory polling, one-way latency.
    UcRdmaWritePollLat,
    /// RC RDMA read, one-way bandwidth.
    RcRdmaReadBw,
    /// RC RDMA read, bandwidth in both directions at once.
    RcRdmaReadBiBw,
    /// RC RDMA read, round trip.
    RcRdmaReadLat,
    /// RC compare-and-swap, messages per second.
    RcCompareSwapMr,
    /// RC compare-and-swap, round trip.
    RcCompareSwapLat,
    /// RC fetch-and-add, messages per second.
    RcFetchAddMr,
    /// RC fetch-and-add, round trip.
    RcFetchAddLat,
    /// RC compare-and-swap, each result checked.
    VerRcCompareSwap,
    /// RC fetch-and-add, each result checked.
    VerRcFetchAdd,
    /// TCP, one-way bandwidth.
    TcpBw,
    /// TCP ping-pong, one-way latency.
    TcpLat,
    /// UDP, one-way bandwidth, sent and received.
    UdpBw,
    /// UDP ping-pong, one-way latency.
    UdpLat,
    /// SCTP, one-way bandwidth.
    SctpBw,
    /// SCTP ping-pong, one-way latency.
    SctpLat,
    /// RDS, one-way bandwidth.
    RdsBw,
    /// RDS ping-pong, one-way latency.
    RdsLat,
    /// Configuration of the two hosts.
    Conf,
    /// Stops the server (only from the server's host by default).
    Quit,
}
