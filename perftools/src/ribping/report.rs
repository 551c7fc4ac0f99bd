//! The output of `ribping`: text in ibping's format, or a JSON document.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::histogram::{Latencies, Percentiles};
use base::log::log;
use serde::Serialize;

use super::tracker::{PingCounts, PingTracker, ReplyKind};
use super::transport::PingTransport;

/// Version of the JSON document. It increases when a field changes its meaning or is removed.
pub(super) const SCHEMA: u32 = 1;

/// The target of a run and the transport to it.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct PingInfo {
    /// Target, such as `Lid 4`.
    pub target: String,
    /// Name of the transport: `umad` or `rdma_cm`.
    pub transport: &'static str,
    /// Local device.
    pub device: String,
    /// Port of the local device.
    pub port: u8,
}

/// Collects the results of a run and prints them.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
pub struct PingReport {
    info: PingInfo,
    is_quiet: bool,
    is_flood: bool,
    shows_errors: bool,
    start: Instant,
    /// Name of the first peer that replied.
    peer: String,
    tracker: PingTracker,
    times: Latencies,
    /// Exact minimum, maximum and sum of the round-trip times.
    min_max_sum: Option<(Duration, Duration, Duration)>,
    is_output_closed: bool,
    /// Number of times the transport was opened.
    opened: u64,
    last_error: Option<String>,
    last_loss: Option<String>,
    note: Option<String>,
}

#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Document<'a> {
    schema: u32,
    program: &'static str,
    #[serde(flatten)]
    info: &'a PingInfo,
    peer: &'a str,
    transmitted: u64,
    received: u64,
    lost: u64,
    /// Null if no packet was sent.
    loss_percent: Option<f64>,
    duplicates: u64,
    late: u64,
    resent: u64,
    /// Number of times the transport was opened again after a failure.
    reconnects: u64,
    /// Reason of the last failure of the transport, or of the whole run.
    last_error: Option<&'a str>,
    /// Reason of the last lost ping. Null if none was lost.
    last_loss: Option<&'a str>,
    /// The facts known about a target that has never replied.
    note: Option<&'a str>,
    time_ns: u64,
    rtt_ns: Option<Percentiles>,
}

impl PingReport {
    /// Creates a report. With `is_quiet` it prints no line per reply; with `shows_errors` it logs
    /// unexpected replies and failures.
    pub(crate) fn new(info: PingInfo, is_quiet: bool, shows_errors: bool) -> Self {
        Self {
            info,
            is_quiet,
            is_flood: false,
            shows_errors,
            start: Instant::now(),
            peer: String::new(),
            tracker: PingTracker::default(),
            times: Latencies::new(),
            min_max_sum: None,
            is_output_closed: false,
            opened: 0,
            last_error: None,
            last_loss: None,
            note: None,
        }
    }

    /// Returns `true` if standard output cannot be written any more, such as a closed pipe.
    pub(crate) fn is_output_closed(&self) -> bool {
        self.is_output_closed
    }

    /// Returns the tracker of sent and answered pings.
    pub(crate) fn tracker(&mut self) -> &mut PingTracker {
        &mut self.tracker
    }

    /// Returns the counts of sent and answered pings.
    pub fn counts(&self) -> PingCounts {
        self.tracker.counts()
    }

    /// Records a reply received at `now`, and prints its line.
    pub(crate) fn record_reply(&mut self, seq: u32, from: &str, now: Instant) -> ReplyKind {
        let reply = self.tracker.record_reply(seq, now);
        if let ReplyKind::First(time) | ReplyKind::Late(time) = reply {
            if self.peer.is_empty() {
                from.clone_into(&mut self.peer);
            }
            self.times
                .record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let (min, max, sum) =
                self.min_max_sum
                    .unwrap_or((Duration::MAX, Duration::ZERO, Duration::ZERO));
            self.min_max_sum = Some((min.min(time), max.max(time), sum.saturating_add(time)));
            if !self.is_quiet {
                let line = format!(
                    "Pong from {from} ({}): time {} ms",
                    self.info.target,
                    Ms(time)
                );
                self.is_output_closed |= writeln!(std::io::stdout(), "{line}").is_err();
            }
        }
        if self.shows_errors && !matches!(reply, ReplyKind::First(_)) {
            log(format_args!(
                "ribping: ping {seq}: {}",
                match reply {
                    ReplyKind::Late(_) => "late reply",
                    ReplyKind::Duplicate => "duplicate reply",
                    _ => "reply to an unknown ping",
                }
            ));
        }
        reply
    }

    /// Logs the failure of a ping.
    pub(crate) fn log_failure(&self, seq: u32, reason: &str) {
        if self.shows_errors {
            log(format_args!("ribping: ping {seq}: {reason}"));
        }
    }

    /// Records that the transport was opened.
    pub(crate) fn record_opened(&mut self, transport: &dyn PingTransport) {
        self.info.device = transport.device();
        self.info.port = transport.port();
        self.info.target = transport.target();
        if self.opened > 0 {
            log(format_args!("ribping: connected again"));
        } else {
            log(format_args!(
                "ribping: pinging {} with {} on {} port {}",
                self.info.target, self.info.transport, self.info.device, self.info.port
            ));
        }
        self.opened += 1;
    }

    /// Records the failure of the transport, which has lost a ping.
    pub(crate) fn record_failed_transport(&mut self, seq: u32, reason: &str) {
        self.log_loss(seq, reason);
        self.last_error = Some(reason.to_owned());
        self.last_loss = Some(reason.to_owned());
    }

    /// Logs the reason of successive losses once, because a flood loses many in a second.
    #[must_use]
    pub(crate) fn with_flood(mut self, is_flood: bool) -> Self {
        self.is_flood = is_flood;
        self
    }

    /// Returns `true` if the reason of a loss was logged for the ping that was lost before, and is
    /// not logged again.
    fn is_repeated(&self, reason: &str) -> bool {
        self.is_flood && self.last_loss.as_deref() == Some(reason)
    }

    fn log_loss(&self, seq: u32, reason: &str) {
        if !self.is_repeated(reason) {
            log(format_args!("ribping: ping {seq} is lost: {reason}"));
        }
    }

    /// Records a ping without a reply. The transport stays open.
    pub(crate) fn record_lost(&mut self, seq: u32, reason: &str) {
        // With -e, each attempt was logged.
        if !self.shows_errors {
            self.log_loss(seq, reason);
        }
        self.last_loss = Some(reason.to_owned());
    }

    /// Records a fault of this host that explains a lost ping. Logs it once, because the transport
    /// stays open and each further ping would repeat it.
    pub(crate) fn record_fault(&mut self, seq: u32, fault: &str) {
        if self.last_error.as_deref() != Some(fault) {
            self.record_failed_transport(seq, fault);
        }
    }

    /// Records a failure of the transport between two pings.
    pub(crate) fn log_closed(&mut self, reason: &str) {
        log(format_args!("ribping: {reason}"));
        self.last_error = Some(reason.to_owned());
    }

    /// Sets the reason for which no ping was sent.
    pub(crate) fn set_error(&mut self, error: &Error) {
        self.last_error = Some(error.to_string());
    }

    /// Sets what is known about a target that has never replied.
    pub(crate) fn set_note(&mut self, note: String) {
        self.note = Some(note);
    }

    /// Logs the counts and times so far.
    pub(crate) fn print_progress(&self) {
        log(format_args!("{}", self.progress()));
    }

    fn progress(&self) -> String {
        let counts = self.tracker.counts();
        format!(
            "{}/{} packets, {}% loss, min/avg/max = {} ms",
            counts.received,
            counts.transmitted,
            self.lost_percent(),
            self.min_avg_max()
        )
    }

    /// Returns the share of lost packets; `-` if none was sent.
    fn lost_percent(&self) -> String {
        let counts = self.tracker.counts();
        let percent = (counts.lost() * 100).checked_div(counts.transmitted);
        percent.map_or_else(|| "-".to_owned(), |percent| percent.to_string())
    }

    /// Returns the shortest, the mean and the longest time; dashes if no reply has arrived.
    fn min_avg_max(&self) -> String {
        let Some((min, max, sum)) = self.min_max_sum else {
            return "-/-/-".to_owned();
        };
        let received = u32::try_from(self.tracker.counts().received).unwrap_or(u32::MAX);
        format!("{}/{}/{}", Ms(min), Ms(sum / received.max(1)), Ms(max))
    }

    /// Returns the percentiles. The histogram rounds them up, but none exceeds the exact maximum.
    fn percentiles(&self) -> Option<Percentiles> {
        let (min, max, _) = self.min_max_sum?;
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let p = self.times.percentiles()?;
        let (min, max) = (nanos(min), nanos(max));
        Some(Percentiles {
            min,
            p50: p.p50.min(max),
            p90: p.p90.min(max),
            p99: p.p99.min(max),
            p99_9: p.p99_9.min(max),
            p99_99: p.p99_99.min(max),
            max,
            ..p
        })
    }

    /// Prints the summary.
    pub(crate) fn finish(&self, json: bool) -> Result<()> {
        let text = self.text(json);
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|e| Error::system("write to standard output", &e))
    }

    /// Returns the summary as text or as JSON.
    pub fn text(&self, json: bool) -> String {
        let time = self.start.elapsed();
        if json {
            self.document(time)
        } else {
            self.summary(time)
        }
    }

    fn summary(&self, time: Duration) -> String {
        let counts = self.tracker.counts();
        let mut text = format!(
            "\n--- {} ({}) ibping statistics ---\n{} packets transmitted, {} received, {}% packet loss, time {} ms\n\
             rtt min/avg/max = {} ms\n",
            self.peer,
            self.info.target,
            counts.transmitted,
            counts.received,
            self.lost_percent(),
            time.as_millis(),
            self.min_avg_max()
        );
        if let Some(p) = self.percentiles().filter(|p| p.samples > 1) {
            let ms = |nanos| Ms(Duration::from_nanos(nanos));
            let _ = writeln!(
                text,
                "rtt p50/p90/p99/p99.9 = {}/{}/{}/{} ms",
                ms(p.p50),
                ms(p.p90),
                ms(p.p99),
                ms(p.p99_9)
            );
        }
        if counts.duplicates + counts.late + counts.resent > 0 {
            let _ = writeln!(
                text,
                "{} duplicates, {} late, {} resent",
                counts.duplicates, counts.late, counts.resent
            );
        }
        if let Some(note) = &self.note {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    #[allow(clippy::cast_precision_loss, reason = "counts below 2^53")]
    fn document(&self, time: Duration) -> String {
        let counts = self.tracker.counts();
        let share =
            (counts.transmitted > 0).then(|| counts.lost() as f64 / counts.transmitted as f64);
        let document = Document {
            schema: SCHEMA,
            program: concat!("ribping ", env!("CARGO_PKG_VERSION")),
            info: &self.info,
            peer: &self.peer,
            transmitted: counts.transmitted,
            received: counts.received,
            lost: counts.lost(),
            loss_percent: share.map(|share| share * 100.0),
            duplicates: counts.duplicates,
            late: counts.late,
            resent: counts.resent,
            reconnects: self.opened.saturating_sub(1),
            last_error: self.last_error.as_deref(),
            last_loss: self.last_loss.as_deref(),
            note: self.note.as_deref(),
            time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            rtt_ns: self.percentiles(),
        };
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }
}

/// Milliseconds with three decimals, truncated like in ibping.
struct Ms(Duration);

impl std::fmt::Display for Ms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

#[cfg(test)]
mod tests {
    use test_support::text::assert_contains;

    use super::*;

    #[test]
    fn schema_is_up_to_date() {
        base::schema::assert_up_to_date::<Document<'_>>(
            "ribping",
            SCHEMA,
            "Output of ribping --json",
        );
    }

    #[test]
    fn successive_losses_of_one_reason_are_logged_once() {
        for is_flood in [true, false] {
            let report = PingReport::new(PingInfo::default(), true, false);
            let mut report = report.with_flood(is_flood);
            assert!(!report.is_repeated("no server"));
            report.record_lost(0, "no server");
            assert_eq!(report.is_repeated("no server"), is_flood);
            assert!(!report.is_repeated("no reply"));
        }
    }

    fn report() -> PingReport {
        let info = PingInfo {
            target: "Lid 4".into(),
            transport: "umad",
            device: "ibsim0".into(),
            port: 1,
        };
        let mut report = PingReport::new(info, true, false);
        let start = Instant::now();
        for (seq, micros) in [(0, 1500), (1, 2500), (2, 0)] {
            report.tracker().record_sent(seq, start);
            if micros > 0 {
                report.record_reply(seq, "node1", start + Duration::from_micros(micros));
            }
        }
        report.record_reply(0, "node1", start + Duration::from_millis(3));
        report
    }

    #[test]
    fn the_summary_has_ibpings_format() {
        let text = report().summary(Duration::from_millis(2001));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..4],
            [
                "",
                "--- node1 (Lid 4) ibping statistics ---",
                "3 packets transmitted, 2 received, 33% packet loss, time 2001 ms",
                "rtt min/avg/max = 1.500/2.000/2.500 ms",
            ]
        );
        assert!(
            lines[4].starts_with("rtt p50/p90/p99/p99.9 = 1.5"),
            "{text}"
        );
        assert_eq!(lines[5], "1 duplicates, 0 late, 0 resent");
    }

    #[test]
    fn no_percentile_exceeds_the_maximum() {
        let mut report = report();
        // A value in the middle of a bucket of the histogram.
        let start = Instant::now();
        report.tracker().record_sent(9, start);
        report.record_reply(9, "node1", start + Duration::from_nanos(7_777_777));
        let p = report.percentiles().expect("replies");
        assert_eq!((p.min, p.max, p.p99_99), (1_500_000, 7_777_777, 7_777_777));
    }

    #[test]
    fn the_document_has_a_version_and_exact_counts() {
        let value: serde_json::Value =
            serde_json::from_str(&report().document(Duration::from_secs(2))).expect("JSON");
        assert_eq!(value["schema"], SCHEMA);
        assert_eq!(value["target"], "Lid 4");
        assert_eq!(
            (value["transmitted"].as_u64(), value["lost"].as_u64()),
            (Some(3), Some(1))
        );
        assert_eq!(value["rtt_ns"]["samples"], 2);
    }

    #[test]
    fn a_run_without_pings_has_a_summary() {
        let info = PingInfo {
            target: "Lid 4".into(),
            transport: "umad",
            device: String::new(),
            port: 1,
        };
        let report = PingReport::new(info, true, false);
        let text = report.summary(Duration::ZERO);
        assert_contains(
            &text,
            &[
                "0 packets transmitted, 0 received, -% packet loss",
                "rtt min/avg/max = -/-/- ms",
            ],
        );
        assert!(
            report
                .progress()
                .ends_with("-% loss, min/avg/max = -/-/- ms")
        );
        let document = report.document(Duration::ZERO);
        assert_contains(&document, &["\"rtt_ns\": null", "\"loss_percent\": null"]);
    }
}
