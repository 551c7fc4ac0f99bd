//! The result of a test as both ends have measured it. The crate `report` judges it and makes a
//! record of it.

use base::advice::Advice;
use host::host_conf::HostConf;
use serde::{Deserialize, Serialize};

use crate::spec::Spec;
use crate::spec::connection::ConnectionInfo;
use crate::spec::plan::Plan;
use crate::stats::SideStats;
use crate::stats::interval::{Dip, Interval};
use crate::stats::latency::LatencyRecorder;

/// Kind of a warning, for programs to match. The kinds whose description begins with "Counters" are
/// causes that the counters of the ports show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WarningKind {
    /// The program was built without optimization.
    DebugBuild,
    /// The frequency of the processors is scaled.
    CpuScaling,
    /// Memory of the host is swapped out.
    Swap,
    /// Threads of the test waited for a processor.
    Oversubscribed,
    /// The path MTU is below the MTU of the port.
    MtuBelowPort,
    /// The path MTU is below 4096 bytes.
    SmallMtu,
    /// The port carried more than the traffic of the test.
    OtherTraffic,
    /// The rate limit determines the number of messages.
    RateLimit,
    /// Too few messages were measured for stable figures.
    FewMessages,
    /// Messages of another sender arrived.
    Foreign,
    /// Messages were lost.
    Lost,
    /// The client had a stall.
    Stalled,
    /// Counters: the link went down.
    LinkDown,
    /// Counters: packets were damaged on the link.
    SymbolErrors,
    /// Counters: the receiver had no receive request posted.
    ReceiverNotReady,
    /// Counters: a port or a host discarded packets.
    Discards,
    /// Counters: packets were lost or reordered.
    PacketLoss,
    /// Counters: requests arrived again.
    Duplicates,
    /// Counters: acknowledgements came late, and requests were sent again.
    LateAcknowledgements,
    /// Counters: the responder rejected requests.
    RejectedRequests,
    /// Counters: switches marked packets, or adapters reduced their rate.
    Congestion,
    /// Counters: a port was paused.
    PauseFrames,
    /// A kind that only a newer version has.
    #[serde(other)]
    Other,
}

/// A condition that can distort the results.
pub type Warning = Advice<WarningKind>;

/// The result of one session.
#[derive(Debug)]
pub struct TestResult {
    /// `true` if the test was interrupted. The figures cover the time until then.
    pub partial: bool,
    /// Requested parameters.
    pub spec: Spec,
    /// Service, verb and pattern of the test on these devices; none for socket tests.
    pub plan: Option<Plan>,
    /// Negotiated total number of messages in flight on all queue pairs.
    pub depth: u32,
    /// Device and path of the client.
    pub local: ConnectionInfo,
    /// Device and path of the server.
    pub remote: ConnectionInfo,
    /// The client's host.
    pub local_host: HostConf,
    /// The server's host.
    pub remote_host: Option<HostConf>,
    /// Counters of the client.
    pub local_stats: SideStats,
    /// Counters of the server.
    pub remote_stats: SideStats,
    /// Latencies, for latency tests.
    pub latency: Option<LatencyRecorder>,
    /// `true` if both ends are on one host.
    pub one_host: bool,
    /// `true` if both ends use the same port.
    pub one_port: bool,
    /// Conditions on the server's host, as the server describes them.
    pub server_warnings: Vec<Warning>,
}

/// The result of one of several devices that were measured at the same time.
#[derive(Debug)]
pub struct DeviceRun {
    /// Name of the client's device, as on the command line; empty if none is given.
    pub device: String,
    /// Time from the start of the first device to the start of this one, in nanoseconds.
    pub start_offset: u64,
    /// Result of the session.
    pub result: TestResult,
}

/// The result of a test with all of its sessions.
#[derive(Debug)]
pub struct TestRun {
    /// The sessions: one, or one for each of several devices.
    pub devices: Vec<DeviceRun>,
    /// Results of each interval, if they were requested.
    pub intervals: Vec<Interval>,
    /// Stalls and outliers among the intervals.
    pub dips: Vec<Dip>,
}
