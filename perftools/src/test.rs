//! The names of the tests: those there are, and those of qperf that are still to come.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::socket::Kind;

/// A test that this version runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Test {
    /// RC send/receive, one way, bandwidth.
    RcBw,
    /// RC send/receive, both ways at once, bandwidth.
    RcBiBw,
    /// RC send/receive ping-pong, one-way latency.
    RcLat,
    /// TCP, bandwidth.
    TcpBw,
    /// TCP ping-pong, one-way latency.
    TcpLat,
    /// UDP, bandwidth of both ends: what is lost on the way shows.
    UdpBw,
    /// UDP ping-pong, one-way latency.
    UdpLat,
    /// SCTP, bandwidth.
    SctpBw,
    /// SCTP ping-pong, one-way latency.
    SctpLat,
    /// RDS, bandwidth.
    RdsBw,
    /// RDS ping-pong, one-way latency.
    RdsLat,
    /// What the two hosts are.
    Conf,
    /// Ends the server.
    Quit,
}

/// Each test with its name and what `--help tests` says of it.
const TESTS: &[(Test, &str, &str)] = &[
    (Test::RcBw, "rc_bw", "RC send/receive, one-way bandwidth"),
    (Test::RcBiBw, "rc_bi_bw", "RC send/receive, bandwidth in both directions at once"),
    (Test::RcLat, "rc_lat", "RC send/receive ping-pong, one-way latency"),
    (Test::TcpBw, "tcp_bw", "TCP, one-way bandwidth"),
    (Test::TcpLat, "tcp_lat", "TCP ping-pong, one-way latency"),
    (Test::UdpBw, "udp_bw", "UDP, one-way bandwidth, sent and received"),
    (Test::UdpLat, "udp_lat", "UDP ping-pong, one-way latency"),
    (Test::SctpBw, "sctp_bw", "SCTP, one-way bandwidth"),
    (Test::SctpLat, "sctp_lat", "SCTP ping-pong, one-way latency"),
    (Test::RdsBw, "rds_bw", "RDS, one-way bandwidth"),
    (Test::RdsLat, "rds_lat", "RDS ping-pong, one-way latency"),
    (Test::Conf, "conf", "what the two hosts are"),
    (Test::Quit, "quit", "ends the server (from its own host only)"),
];

/// Tests that qperf has and this version has not.
const NOT_YET: &[&str] = &[
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "rc_rdma_read_bw",
    "rc_rdma_read_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_poll_lat",
    "uc_bi_bw",
    "uc_bw",
    "uc_lat",
    "uc_rdma_write_bw",
    "uc_rdma_write_lat",
    "uc_rdma_write_poll_lat",
    "ud_bi_bw",
    "ud_bw",
    "ud_lat",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
    "xrc_bi_bw",
    "xrc_bw",
    "xrc_lat",
];

/// Tests of qperf that nothing can run any more.
const GONE: &[&str] = &["sdp_bw", "sdp_lat"];

impl Test {
    /// The name on the command line and in the output.
    pub fn name(self) -> &'static str {
        TESTS.iter().find(|t| t.0 == self).map_or("?", |t| t.1)
    }

    /// The test of this name.
    ///
    /// # Errors
    /// Says whether the name is one of qperf's that is still to come, or which name may have been meant.
    pub fn from_name(name: &str) -> Result<Self> {
        if let Some(test) = TESTS.iter().find(|t| t.1 == name) {
            return Ok(test.0);
        }
        if GONE.contains(&name) {
            return Err(Error::usage(format!(
                "{name}: SDP is gone from Linux (it never was in the kernel's own sources, and OFED dropped it in 2014); rc_bw and tcp_bw measure what replaced it"
            )));
        }
        if NOT_YET.contains(&name) {
            return Err(Error::usage(format!(
                "{name}: this version of rperf does not have this test yet; `rperf --help tests` lists those it has"
            )));
        }
        let hint = Self::suggest(name).map_or_else(String::new, |near| format!("did you mean {near}? "));
        Err(Error::usage(format!("{name}: no such test; {hint}`rperf --help tests` lists them")))
    }

    /// The names of all tests.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TESTS.iter().map(|test| test.1)
    }

    /// True for the name of a test, also of one that is still to come.
    pub fn is_name(name: &str) -> bool {
        NOT_YET.contains(&name) || GONE.contains(&name) || TESTS.iter().any(|t| t.1 == name)
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

    /// True where messages are counted by time of flight, not by volume.
    pub fn is_latency(self) -> bool {
        matches!(self, Test::RcLat | Test::TcpLat | Test::UdpLat | Test::SctpLat | Test::RdsLat)
    }

    /// What carries the messages of a test over sockets.
    pub fn socket(self) -> Option<Kind> {
        match self {
            Test::TcpBw | Test::TcpLat => Some(Kind::Tcp),
            Test::UdpBw | Test::UdpLat => Some(Kind::Udp),
            Test::SctpBw | Test::SctpLat => Some(Kind::Sctp),
            Test::RdsBw | Test::RdsLat => Some(Kind::Rds),
            _ => None,
        }
    }

    /// True where messages may be lost, so that what was sent is a figure of its own.
    pub fn may_lose(self) -> bool {
        self.socket() == Some(Kind::Udp)
    }

    /// True where data moves between the two ends.
    pub fn moves_data(self) -> bool {
        !matches!(self, Test::Conf | Test::Quit)
    }

    /// The message size where none is asked for, as qperf's: 64 KiB for bandwidth (UDP and SCTP 32, RDS 8), one byte for latency.
    pub fn default_size(self) -> u64 {
        match self.socket() {
            _ if self.is_latency() => 1,
            Some(Kind::Udp | Kind::Sctp) => 32 << 10,
            Some(Kind::Rds) => 8 << 10,
            _ => 64 << 10,
        }
    }

    /// The list that `--help tests` prints.
    pub fn list() -> String {
        let lines: Vec<String> = TESTS.iter().map(|(_, name, about)| format!("    {name:<12}{about}\n")).collect();
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
    fn qperfs_other_tests_are_known_as_such() {
        let text = Test::from_name("ud_bw").unwrap_err().to_string();
        assert!(text.contains("does not have this test yet"), "{text}");
        assert!(Test::is_name("ud_bw"));
    }

    #[test]
    fn sdp_is_gone() {
        let text = Test::from_name("sdp_lat").unwrap_err().to_string();
        assert!(text.contains("gone from Linux"), "{text}");
    }

    #[test]
    fn every_test_has_a_name_that_leads_back() {
        for (test, name, _) in TESTS {
            assert_eq!(Test::from_name(name), Ok(*test));
            assert_eq!(test.name(), *name);
        }
    }
}
