//! The names of the tests, and what each does.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::plan::Pattern::{self, BothWays, OneWay, PingPong, Polled};
use crate::plan::Plan;
use crate::plan::Service::{self, Rc, Uc, Ud, Xrc};
use crate::plan::Verb::{self, CompareSwap, FetchAdd, Read, Send, Write, WriteImm};
use crate::socket::kind::Kind;

/// A test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// RC RDMA write ping-pong seen in memory, one-way latency.
    RcRdmaWritePollLat,
    /// UC RDMA write, one-way bandwidth.
    UcRdmaWriteBw,
    /// UC RDMA write, bandwidth in both directions at once.
    UcRdmaWriteBiBw,
    /// UC RDMA write ping-pong, one-way latency.
    UcRdmaWriteLat,
    /// UC RDMA write ping-pong seen in memory, one-way latency.
    UcRdmaWritePollLat,
    /// RC RDMA read, one-way bandwidth.
    RcRdmaReadBw,
    /// RC RDMA read, bandwidth in both directions at once.
    RcRdmaReadBiBw,
    /// RC RDMA read, round trip.
    RcRdmaReadLat,
    /// RC compare-and-swap, messages a second.
    RcCompareSwapMr,
    /// RC compare-and-swap, round trip.
    RcCompareSwapLat,
    /// RC fetch-and-add, messages a second.
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
    /// What the two hosts are.
    Conf,
    /// Ends the server (from its own host only).
    Quit,
}

/// What a test does.
#[derive(Clone, Copy, Debug)]
enum What {
    /// Data over an RDMA device.
    Rdma(Plan),
    /// Data over sockets: bandwidth, or latency.
    Sockets { kind: Kind, latency: bool },
    /// Words over the control connection.
    Words,
}

const fn rdma(service: Service, verb: Verb, pattern: Pattern) -> What {
    What::Rdma(Plan { service, verb, pattern })
}

/// Each test with its name, what `--help tests` says of it, and what it does.
const TESTS: &[(Test, &str, &str, What)] = &[
    (Test::RcBw, "rc_bw", "RC send/receive, one-way bandwidth", rdma(Rc, Send, OneWay)),
    (Test::RcBiBw, "rc_bi_bw", "RC send/receive, bandwidth in both directions at once", rdma(Rc, Send, BothWays)),
    (Test::RcLat, "rc_lat", "RC send/receive ping-pong, one-way latency", rdma(Rc, Send, PingPong)),
    (Test::UcBw, "uc_bw", "UC send/receive, one-way bandwidth", rdma(Uc, Send, OneWay)),
    (Test::UcBiBw, "uc_bi_bw", "UC send/receive, bandwidth in both directions at once", rdma(Uc, Send, BothWays)),
    (Test::UcLat, "uc_lat", "UC send/receive ping-pong, one-way latency", rdma(Uc, Send, PingPong)),
    (Test::UdBw, "ud_bw", "UD send/receive, one-way bandwidth", rdma(Ud, Send, OneWay)),
    (Test::UdBiBw, "ud_bi_bw", "UD send/receive, bandwidth in both directions at once", rdma(Ud, Send, BothWays)),
    (Test::UdLat, "ud_lat", "UD send/receive ping-pong, one-way latency", rdma(Ud, Send, PingPong)),
    (Test::XrcBw, "xrc_bw", "XRC send/receive, one-way bandwidth", rdma(Xrc, Send, OneWay)),
    (Test::XrcBiBw, "xrc_bi_bw", "XRC send/receive, bandwidth in both directions at once", rdma(Xrc, Send, BothWays)),
    (Test::XrcLat, "xrc_lat", "XRC send/receive ping-pong, one-way latency", rdma(Xrc, Send, PingPong)),
    (Test::RcRdmaWriteBw, "rc_rdma_write_bw", "RC RDMA write, one-way bandwidth", rdma(Rc, WriteImm, OneWay)),
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
        "RC RDMA write ping-pong seen in memory, one-way latency",
        rdma(Rc, Write, Polled),
    ),
    (Test::UcRdmaWriteBw, "uc_rdma_write_bw", "UC RDMA write, one-way bandwidth", rdma(Uc, WriteImm, OneWay)),
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
        "UC RDMA write ping-pong seen in memory, one-way latency",
        rdma(Uc, Write, Polled),
    ),
    (Test::RcRdmaReadBw, "rc_rdma_read_bw", "RC RDMA read, one-way bandwidth", rdma(Rc, Read, OneWay)),
    (
        Test::RcRdmaReadBiBw,
        "rc_rdma_read_bi_bw",
        "RC RDMA read, bandwidth in both directions at once",
        rdma(Rc, Read, BothWays),
    ),
    (Test::RcRdmaReadLat, "rc_rdma_read_lat", "RC RDMA read, round trip", rdma(Rc, Read, PingPong)),
    (
        Test::RcCompareSwapMr,
        "rc_compare_swap_mr",
        "RC compare-and-swap, messages a second",
        rdma(Rc, CompareSwap, OneWay),
    ),
    (Test::RcCompareSwapLat, "rc_compare_swap_lat", "RC compare-and-swap, round trip", rdma(Rc, CompareSwap, PingPong)),
    (Test::RcFetchAddMr, "rc_fetch_add_mr", "RC fetch-and-add, messages a second", rdma(Rc, FetchAdd, OneWay)),
    (Test::RcFetchAddLat, "rc_fetch_add_lat", "RC fetch-and-add, round trip", rdma(Rc, FetchAdd, PingPong)),
    (
        Test::VerRcCompareSwap,
        "ver_rc_compare_swap",
        "RC compare-and-swap, each result checked",
        rdma(Rc, CompareSwap, OneWay),
    ),
    (Test::VerRcFetchAdd, "ver_rc_fetch_add", "RC fetch-and-add, each result checked", rdma(Rc, FetchAdd, OneWay)),
    (Test::TcpBw, "tcp_bw", "TCP, one-way bandwidth", What::Sockets { kind: Kind::Tcp, latency: false }),
    (Test::TcpLat, "tcp_lat", "TCP ping-pong, one-way latency", What::Sockets { kind: Kind::Tcp, latency: true }),
    (
        Test::UdpBw,
        "udp_bw",
        "UDP, one-way bandwidth, sent and received",
        What::Sockets { kind: Kind::Udp, latency: false },
    ),
    (Test::UdpLat, "udp_lat", "UDP ping-pong, one-way latency", What::Sockets { kind: Kind::Udp, latency: true }),
    (Test::SctpBw, "sctp_bw", "SCTP, one-way bandwidth", What::Sockets { kind: Kind::Sctp, latency: false }),
    (Test::SctpLat, "sctp_lat", "SCTP ping-pong, one-way latency", What::Sockets { kind: Kind::Sctp, latency: true }),
    (Test::RdsBw, "rds_bw", "RDS, one-way bandwidth", What::Sockets { kind: Kind::Rds, latency: false }),
    (Test::RdsLat, "rds_lat", "RDS ping-pong, one-way latency", What::Sockets { kind: Kind::Rds, latency: true }),
    (Test::Conf, "conf", "what the two hosts are", What::Words),
    (Test::Quit, "quit", "ends the server (from its own host only)", What::Words),
];

/// Tests of qperf that nothing can run any more.
const GONE: &[&str] = &["sdp_bw", "sdp_lat"];

impl Test {
    /// The name on the command line and in the output.
    pub fn name(self) -> &'static str {
        TESTS.iter().find(|t| t.0 == self).map_or("?", |t| t.1)
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        TESTS.iter().find(|t| t.0 == self).map_or("", |t| t.2)
    }

    /// The test of this name.
    ///
    /// # Errors
    /// Says which name may have been meant.
    pub fn from_name(name: &str) -> Result<Self> {
        if let Some(test) = TESTS.iter().find(|t| t.1 == name) {
            return Ok(test.0);
        }
        if GONE.contains(&name) {
            return Err(Error::usage(format!(
                "{name}: SDP is gone from Linux (it never was in the kernel's own sources, and OFED dropped it in 2014); rc_bw and tcp_bw measure what replaced it"
            )));
        }
        let hint = Self::suggest(name).map_or_else(String::new, |near| format!("did you mean {near}? "));
        Err(Error::usage(format!("{name}: no such test; {hint}`rperf --help tests` lists them")))
    }

    /// The names of all tests.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TESTS.iter().map(|test| test.1)
    }

    /// True for the name of a test, also of one that is gone.
    pub fn is_name(name: &str) -> bool {
        GONE.contains(&name) || TESTS.iter().any(|t| t.1 == name)
    }

    /// The test name nearest to a misspelt one, if it is near.
    pub fn suggest(name: &str) -> Option<&'static str> {
        TESTS
            .iter()
            .map(|t| (strsim::damerau_levenshtein(t.1, &name.to_lowercase().replace('-', "_")), t.1))
            .filter(|(distance, known)| *distance <= known.len() / 3)
            .min()
            .map(|near| near.1)
    }

    fn what(self) -> What {
        TESTS.iter().find(|t| t.0 == self).map_or(What::Words, |t| t.3)
    }

    /// What it does on an RDMA device; none for those that use no device.
    pub fn plan(self) -> Option<Plan> {
        match self.what() {
            What::Rdma(plan) => Some(plan),
            _ => None,
        }
    }

    /// What carries the messages of a test over sockets.
    pub fn socket(self) -> Option<Kind> {
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
            What::Sockets { kind, .. } => kind == Kind::Udp,
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

    /// The message size where none is asked for, as qperf's: 64 KiB for bandwidth (UDP and SCTP 32, RDS 8, UD 2), one byte
    /// for latency; an atomic has 8 bytes.
    pub fn default_size(self) -> u64 {
        match self.what() {
            What::Rdma(plan) if plan.verb.is_atomic() => 8,
            _ if self.is_latency() => 1,
            What::Rdma(plan) if plan.service == Service::Ud => 2 << 10,
            What::Sockets { kind: Kind::Udp | Kind::Sctp, .. } => 32 << 10,
            What::Sockets { kind: Kind::Rds, .. } => 8 << 10,
            _ => 64 << 10,
        }
    }

    /// The list that `--help tests` prints.
    pub fn list() -> String {
        let lines: Vec<String> = TESTS.iter().map(|(_, name, about, _)| format!("    {name:<24}{about}\n")).collect();
        lines.concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_near_one() {
        let text = Test::from_name("rc_bv").unwrap_err().to_string();
        assert!(text.contains("did you mean rc_bw"), "{text}");
        assert_eq!(Test::suggest("RC-LAT"), Some("rc_lat"));
        assert_eq!(Test::suggest("node17"), None);
    }

    #[test]
    fn sdp_is_gone() {
        let text = Test::from_name("sdp_lat").unwrap_err().to_string();
        assert!(text.contains("gone from Linux"), "{text}");
    }

    #[test]
    fn every_test_has_a_name_that_leads_back() {
        for (test, name, ..) in TESTS {
            assert_eq!(Test::from_name(name), Ok(*test));
            assert_eq!(test.name(), *name);
        }
    }
}
