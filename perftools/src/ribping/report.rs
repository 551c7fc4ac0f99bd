//! What `ribping` prints: ibping's lines, and a JSON document.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::tracker::{PingCounts, PingTracker, ReplyKind};
use crate::common::error::{Error, Result, log};
use crate::common::histogram::{Latencies, Percentiles};

/// Version of the JSON document; it rises when a field changes its meaning or goes.
pub const SCHEMA: u32 = 1;

/// Whither and how.
#[derive(Clone, Debug, Serialize)]
pub struct PingInfo {
    /// What is pinged: `Lid 4`.
    pub target: String,
    /// `umad` or `rdma_cm`.
    #[serde(rename = "way")]
    pub transport: &'static str,
    /// The own device.
    pub device: String,
    /// Its port.
    pub port: u8,
}

/// Collects what happened and prints it.
#[derive(Debug)]
pub struct Report {
    info: PingInfo,
    is_quiet: bool,
    shows_errors: bool,
    start: Instant,
    /// Who answered first.
    peer: String,
    tracker: PingTracker,
    times: Latencies,
    /// The shortest, the longest and the sum, exactly.
    exact: Option<(Duration, Duration, Duration)>,
    is_unheard: bool,
}

#[derive(Serialize)]
struct Document<'a> {
    schema: u32,
    program: &'static str,
    #[serde(flatten)]
    info: &'a PingInfo,
    peer: &'a str,
    transmitted: u64,
    received: u64,
    lost: u64,
    loss_percent: f64,
    duplicates: u64,
    late: u64,
    resent: u64,
    time_ns: u64,
    rtt_ns: Option<Percentiles>,
}

impl Report {
    /// A report that prints no line for each answer when it is quiet.
    pub fn new(info: PingInfo, is_quiet: bool, shows_errors: bool) -> Self {
        Self {
            info,
            is_quiet,
            shows_errors,
            start: Instant::now(),
            peer: String::new(),
            tracker: PingTracker::default(),
            times: Latencies::new(),
            exact: None,
            is_unheard: false,
        }
    }

    /// Whether nobody takes the lines any more: a closed pipe.
    pub fn is_unheard(&self) -> bool {
        self.is_unheard
    }

    /// What was sent and answered.
    pub fn tracker(&mut self) -> &mut PingTracker {
        &mut self.tracker
    }

    /// What was sent and answered, in numbers.
    pub fn counts(&self) -> PingCounts {
        self.tracker.counts()
    }

    /// An answer came now; the result says what it is.
    pub fn answered(&mut self, seq: u32, from: &str, now: Instant) -> ReplyKind {
        let answer = self.tracker.answered(seq, now);
        if let ReplyKind::First(time) | ReplyKind::Late(time) = answer {
            if self.peer.is_empty() {
                from.clone_into(&mut self.peer);
            }
            self.times
                .record(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
            let (min, max, sum) =
                self.exact
                    .unwrap_or((Duration::MAX, Duration::ZERO, Duration::ZERO));
            self.exact = Some((min.min(time), max.max(time), sum.saturating_add(time)));
            if !self.is_quiet {
                let line = format!(
                    "Pong from {from} ({}): time {} ms",
                    self.info.target,
                    Ms(time)
                );
                self.is_unheard |= writeln!(std::io::stdout(), "{line}").is_err();
            }
        }
        if self.shows_errors && !matches!(answer, ReplyKind::First(_)) {
            log(format_args!(
                "ribping: ping {seq}: {}",
                match answer {
                    ReplyKind::Late(_) => "the answer came late",
                    ReplyKind::Duplicate => "answered again",
                    _ => "an answer to nothing that was asked",
                }
            ));
        }
        answer
    }

    /// Something went wrong with a ping.
    pub fn failed(&self, seq: u32, why: &str) {
        if self.shows_errors {
            log(format_args!("ribping: ping {seq}: {why}"));
        }
    }

    /// Prints the summary.
    ///
    /// # Errors
    /// The output cannot be written.
    pub fn finish(&self, json: bool) -> Result<()> {
        let text = self.text(json);
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())
            .and_then(|()| out.flush())
            .map_err(|e| Error::system("cannot write the output", &e))
    }

    /// The summary, as lines or as JSON.
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
        let percent = (counts.lost() * 100)
            .checked_div(counts.transmitted)
            .unwrap_or(0);
        let (min, max, sum) = self.exact.unwrap_or_default();
        let mean = sum
            .checked_div(u32::try_from(counts.received).unwrap_or(u32::MAX))
            .unwrap_or_default();
        let mut text = format!(
            "\n--- {} ({}) ibping statistics ---\n{} packets transmitted, {} received, {percent}% packet loss, time {} ms\n\
             rtt min/avg/max = {}/{}/{} ms\n",
            self.peer,
            self.info.target,
            counts.transmitted,
            counts.received,
            time.as_millis(),
            Ms(min),
            Ms(mean),
            Ms(max)
        );
        if let Some(p) = self.times.percentiles().filter(|p| p.samples > 1) {
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
        text
    }

    #[allow(clippy::cast_precision_loss, reason = "counts below 2^53")]
    fn document(&self, time: Duration) -> String {
        let counts = self.tracker.counts();
        let share = if counts.transmitted == 0 {
            0.0
        } else {
            counts.lost() as f64 / counts.transmitted as f64
        };
        let document = Document {
            schema: SCHEMA,
            program: concat!("ribping ", env!("CARGO_PKG_VERSION")),
            info: &self.info,
            peer: &self.peer,
            transmitted: counts.transmitted,
            received: counts.received,
            lost: counts.lost(),
            loss_percent: share * 100.0,
            duplicates: counts.duplicates,
            late: counts.late,
            resent: counts.resent,
            time_ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
            rtt_ns: self.times.percentiles(),
        };
        serde_json::to_string_pretty(&document).unwrap_or_default() + "\n"
    }
}

/// Milliseconds with three decimals, cut off, as ibping prints them.
struct Ms(Duration);

impl std::fmt::Display for Ms {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let micros = self.0.as_micros();
        write!(f, "{}.{:03}", micros / 1000, micros % 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let info = PingInfo {
            target: "Lid 4".into(),
            transport: "umad",
            device: "ibsim0".into(),
            port: 1,
        };
        let mut report = Report::new(info, true, false);
        let start = Instant::now();
        for (seq, micros) in [(0, 1500), (1, 2500), (2, 0)] {
            report.tracker().sent(seq, start);
            if micros > 0 {
                report.answered(seq, "node1", start + Duration::from_micros(micros));
            }
        }
        report.answered(0, "node1", start + Duration::from_millis(3));
        report
    }

    #[test]
    fn the_summary_is_ibpings() {
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
    fn nothing_sent_is_no_division_by_zero() {
        let info = PingInfo {
            target: "Lid 4".into(),
            transport: "umad",
            device: String::new(),
            port: 1,
        };
        let report = Report::new(info, true, false);
        assert!(
            report
                .summary(Duration::ZERO)
                .contains("0 packets transmitted, 0 received, 0% packet loss")
        );
        assert!(report.document(Duration::ZERO).contains("\"rtt_ns\": null"));
    }
}
