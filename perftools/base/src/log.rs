//! The log of a server, on standard error.
//!
//! A separate thread writes the lines of a server, so that a reader of standard error that has
//! stopped blocks neither a session nor the handling of signals. A flood of lines is limited, and
//! the number of suppressed lines is logged.

use std::fmt;
use std::io::{self, Write as _};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Number of lines that may wait for the writer.
const QUEUED_LINES: usize = 256;
/// Number of lines that are written without a limit of the rate.
const BURST_LINES: u32 = 100;
/// Sustained number of lines per second.
const LINES_PER_SECOND: u32 = 20;
/// Interval at which suppressed lines are reported.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Time that the end of the program waits for lines that are not yet written.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(500);

/// The writer of this process, once it has been started.
static WRITER: OnceLock<Writer> = OnceLock::new();
/// Lines that were suppressed since the last report.
static SUPPRESSED: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Writer {
    entries: SyncSender<Entry>,
}

enum Entry {
    Line(String),
    /// Requests a reply when all earlier lines are written.
    Flush(SyncSender<()>),
}

/// Writes a line to standard error and ignores failures, because a server may outlive the terminal
/// that it was started from. After [`start_writer`] it never blocks.
pub fn log(line: fmt::Arguments<'_>) {
    let Some(writer) = WRITER.get() else {
        let _ = writeln!(io::stderr(), "{line}");
        return;
    };
    if writer
        .entries
        .try_send(Entry::Line(line.to_string()))
        .is_err()
    {
        count_suppressed();
    }
}

/// Counts a line that is not written because there are too many.
pub fn count_suppressed() {
    SUPPRESSED.fetch_add(1, Ordering::Relaxed);
}

/// Starts the thread that writes all further lines of this process. Later calls have no effect.
pub fn start_writer(program: &'static str) -> Result<()> {
    let (entries, received) = sync_channel(QUEUED_LINES);
    if WRITER.set(Writer { entries }).is_err() {
        return Ok(());
    }
    std::thread::Builder::new()
        .name("log".into())
        .stack_size(256 << 10)
        .spawn(move || write_lines(program, &received, io::stderr))
        .map(drop)
        .map_err(|e| Error::system("cannot create the thread of the log", &e))
}

/// Waits until all lines are written, for at most half a second.
pub fn flush() {
    let Some(writer) = WRITER.get() else { return };
    let (reply, replied) = sync_channel(1);
    if writer.entries.try_send(Entry::Flush(reply)).is_ok() {
        let _ = replied.recv_timeout(FLUSH_TIMEOUT);
    }
}

/// Writes lines until all senders are dropped.
fn write_lines<W: io::Write>(
    program: &str,
    entries: &Receiver<Entry>,
    mut output: impl FnMut() -> W,
) {
    let mut limit = RateLimit::new(BURST_LINES, LINES_PER_SECOND, Instant::now());
    loop {
        match entries.recv_timeout(REPORT_INTERVAL) {
            Ok(Entry::Line(line)) => {
                if limit.admits(Instant::now()) {
                    let _ = writeln!(output(), "{line}");
                } else {
                    count_suppressed();
                }
            }
            Ok(Entry::Flush(reply)) => {
                report_suppressed(program, &mut output);
                let _ = reply.try_send(());
            }
            Err(RecvTimeoutError::Timeout) => report_suppressed(program, &mut output),
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if limit.is_report_due(Instant::now()) {
            report_suppressed(program, &mut output);
        }
    }
}

fn report_suppressed<W: io::Write>(program: &str, output: &mut impl FnMut() -> W) {
    let count = SUPPRESSED.swap(0, Ordering::Relaxed);
    if count > 0 {
        let _ = writeln!(output(), "{program}: {count} log lines suppressed");
    }
}

/// A token bucket for lines.
#[derive(Debug)]
pub struct RateLimit {
    burst: f64,
    per_second: f64,
    /// Lines that may be written now.
    allowed: f64,
    updated: Instant,
    reported: Instant,
}

impl RateLimit {
    /// Creates a limit of `burst` lines at a time, and of `per_second` lines over a long time.
    pub fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        Self {
            burst: burst.into(),
            per_second: per_second.into(),
            allowed: burst.into(),
            updated: now,
            reported: now,
        }
    }

    /// Returns `true` if a line may be written, and counts it.
    pub fn admits(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.updated).as_secs_f64();
        self.updated = now;
        self.allowed = (self.allowed + passed * self.per_second).min(self.burst);
        let is_admitted = self.allowed >= 1.0;
        if is_admitted {
            self.allowed -= 1.0;
        }
        is_admitted
    }

    /// Returns `true` once per report interval.
    fn is_report_due(&mut self, now: Instant) -> bool {
        let is_due = now.saturating_duration_since(self.reported) >= REPORT_INTERVAL;
        if is_due {
            self.reported = now;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_beyond_the_burst_are_limited_to_the_rate() {
        let start = Instant::now();
        let mut limit = RateLimit::new(100, 20, start);
        let admitted = |limit: &mut RateLimit, now| (0..500).filter(|_| limit.admits(now)).count();
        assert_eq!(admitted(&mut limit, start), 100);
        assert_eq!(admitted(&mut limit, start + Duration::from_secs(2)), 40);
        assert_eq!(admitted(&mut limit, start + Duration::from_secs(99)), 100);
        assert!(!limit.is_report_due(start));
        assert!(limit.is_report_due(start + REPORT_INTERVAL));
        assert!(!limit.is_report_due(start + REPORT_INTERVAL));
    }
}
