//! Checks of the counts in a record.

use std::fmt;

use serde_json::Value;

/// Sums over the tests on one network.
#[derive(Default)]
pub(crate) struct Totals {
    pub(crate) measured: u64,
    failed: u64,
    sent: u64,
    lost: u64,
    duplicates: u64,
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} tests measured and {} failed, {} messages sent, {} lost, {} duplicates",
            self.measured, self.failed, self.sent, self.lost, self.duplicates
        )
    }
}

/// Counters of one end.
#[derive(Clone, Copy, Debug)]
struct End {
    sent: u64,
    received: u64,
    received_bytes: u64,
    lost: u64,
    duplicates: u64,
    verified: u64,
}

impl End {
    fn new(stats: &Value) -> Self {
        let number = |path: &str| stats.pointer(path).and_then(Value::as_u64);
        let number = |path: &str| number(path).unwrap_or_else(|| panic!("{path}: {stats:#}"));
        Self {
            sent: number("/sent/msgs"),
            received: number("/received/msgs"),
            received_bytes: number("/received/bytes"),
            lost: number("/lost"),
            duplicates: number("/duplicates"),
            verified: number("/verified"),
        }
    }
}

/// Reasons for which a test may fail on a network that loses packets. Wrong data is none of them.
/// "Remote invalid request" is a fault of rxe (docs/drivers.md, fault 63).
const REASONS: &[&str] = &[
    "nothing arrived from the peer",
    "timed out",
    "no data before the timeout",
    "messages arrived",
    "no data was transferred",
    "transport retries exceeded",
    "work request flushed",
    "time limit",
    "closed the connection",
    "disconnected",
    "the peer sent no heartbeat",
    "a datagram or its reply was lost",
    "cannot reach",
    "not reachable",
    "remote invalid request",
];

/// Checks the record of a test. `must_succeed` is `true` if the network is so mild that only a test
/// that ends with the first lost message may fail.
///
/// # Errors
/// Returns a description of a wrong count or failure.
pub(crate) fn check(record: &Value, must_succeed: bool, totals: &mut Totals) -> Result<(), String> {
    let test = record["test"].as_str().expect("a name");
    let outcome = &record["outcome"];
    if let Some(error) = outcome["failed"]["error"].as_str() {
        totals.failed += 1;
        println!("    {test}: {error}");
        let may_fail = !must_succeed || test == "udp_lat";
        let is_known = REASONS.iter().any(|reason| error.contains(reason));
        return if is_known && may_fail {
            Ok(())
        } else {
            Err(format!("{test}: {error}"))
        };
    }
    let m = &outcome["measured"];
    let (local, remote) = (End::new(&m["local_stats"]), End::new(&m["remote_stats"]));
    totals.measured += 1;
    totals.sent += local.sent + remote.sent;
    totals.lost += local.lost + remote.lost;
    totals.duplicates += local.duplicates + remote.duplicates;
    let wanted = m["spec"]["limit"]["messages"].as_u64().expect("a number");
    // Without immediate data, as on iWARP, the peer's software sees no write.
    let is_write = m["plan"]["verb"] == "write" && m["plan"]["pattern"] != "polled";
    let is_exact = counts_are_exact(test, wanted, is_write, local, remote)
        && all_is_verified(m["plan"]["verb"].as_str(), local, remote);
    if is_exact {
        Ok(())
    } else {
        Err(format!("{test}: {local:?}, {remote:?}"))
    }
}

/// Returns `true` if the counts of both ends agree with each other and with the number of messages
/// that the test had to send.
fn counts_are_exact(test: &str, wanted: u64, is_write: bool, local: End, remote: End) -> bool {
    let is_lossy = test.starts_with('u');
    let is_latency = test.ends_with("_lat");
    let is_read = test.contains("_read_");
    let is_one_sided = is_read || is_write || test.contains("compare") || test.contains("fetch");
    let complete = |count: u64| count == wanted;
    if !is_lossy && local.lost + remote.lost + local.duplicates + remote.duplicates > 0 {
        return false;
    }
    if is_one_sided {
        // The peer's software takes no part, except in the other direction.
        let done = |end: End| if is_read { end.received } else { end.sent };
        return complete(done(local)) && (!test.contains("_bi_") || complete(done(remote)));
    }
    if is_latency {
        // The messages and the replies that were lost are counted at the client.
        return complete(local.sent)
            && local.received + local.lost == local.sent
            && local.received <= remote.sent
            && remote.sent <= remote.received
            && remote.received <= local.sent;
    }
    let arrived = |from: End, to: End| to.received + to.lost == from.sent && complete(from.sent);
    arrived(local, remote) && (!test.contains("_bi_") || arrived(remote, local))
}

/// Returns `true` if all data that was received was verified.
fn all_is_verified(verb: Option<&str>, local: End, remote: End) -> bool {
    if matches!(verb, Some("compare_swap" | "fetch_add" | "write")) {
        local.verified + remote.verified > 0
    } else {
        [local, remote]
            .iter()
            .all(|end| end.verified == end.received_bytes)
    }
}
