//! The ping loop: send a ping, wait for its reply, wait until the next ping is due.

use std::time::{Duration, Instant};

use super::args::PingArgs;
use super::report::Report;
use super::stop::{POLL_INTERVAL, StopFlag};
use super::tracker::PingCounts;
use super::transport::{PingEvent, PingTransport};
use crate::common::error::{Error, Result};

/// Validated settings of a ping run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingConfig {
    /// Number of pings to send.
    pub count: u64,
    /// Time between two pings; zero when flooding.
    pub interval: Duration,
    /// Time to wait for each reply.
    pub timeout: Duration,
    /// Maximum number of times that each ping is sent.
    pub tries: u32,
    /// Duration of the whole run.
    pub deadline: Option<Duration>,
}

impl PingConfig {
    /// Creates the settings from a command line.
    ///
    /// # Errors
    /// Returns [`Kind::Usage`](crate::common::error::Kind::Usage) if an option is out of range.
    pub fn new(args: &PingArgs) -> Result<Self> {
        for (name, value) in [
            ("--count", args.count.unwrap_or(1)),
            ("--timeout", args.timeout.into()),
            ("--tries", args.tries.into()),
        ] {
            if value == 0 {
                return Err(Error::usage(format!("{name} 0: expected at least 1")));
            }
        }
        args.oui()?;
        Ok(Self {
            count: args.count.unwrap_or(u64::MAX),
            interval: if args.flood {
                Duration::ZERO
            } else {
                args.interval
            },
            timeout: args.reply_timeout(),
            tries: args.tries,
            deadline: args.deadline,
        })
    }

    /// Returns `true` if the exit status is 0, like that of ping: at least one reply was received,
    /// or with a count and a deadline, a reply to every ping.
    pub fn is_success(&self, counts: PingCounts) -> bool {
        let required = if self.deadline.is_some() && self.count < u64::MAX {
            self.count
        } else {
            1
        };
        counts.received >= required
    }
}

/// Pings until the count or the deadline is reached, `stop` is set or standard output is closed.
///
/// # Errors
/// Returns the error of the transport. The report has the results up to the error.
pub fn run(
    transport: &mut dyn PingTransport,
    config: &PingConfig,
    stop: &StopFlag,
    report: &mut Report,
) -> Result<()> {
    let start = Instant::now();
    let end = config.deadline.map(|deadline| start + deadline);
    let is_over = |now: Instant| stop.is_set() || end.is_some_and(|end| now >= end);
    let mut next = start;
    for number in 0..config.count {
        let now = Instant::now();
        if is_over(now) || report.is_output_closed() {
            break;
        }
        // A delayed ping delays the next ones too, so that the interval is never shorter.
        next = next.max(now) + config.interval;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "sequence numbers wrap, and only recent ones are compared"
        )]
        ping(transport, config, number as u32, &is_over, report)?;
        if number + 1 < config.count {
            wait_until_next(transport, next, &is_over, report)?;
        }
    }
    Ok(())
}

/// Sends one ping, up to `tries` times, and waits for its reply.
fn ping(
    transport: &mut dyn PingTransport,
    config: &PingConfig,
    seq: u32,
    is_over: &dyn Fn(Instant) -> bool,
    report: &mut Report,
) -> Result<()> {
    for attempt in 0..config.tries {
        let now = Instant::now();
        if attempt == 0 {
            report.tracker().record_sent(seq, now);
        } else {
            report.tracker().record_resend();
        }
        transport.send(seq)?;
        let deadline = now + config.timeout;
        match wait_for_reply(transport, seq, deadline, is_over, report)? {
            PingResult::Answered => return Ok(()),
            PingResult::TimedOut => report.log_failure(seq, "no reply before the timeout"),
            PingResult::Failed(reason) => report.log_failure(seq, &reason),
        }
        if is_over(Instant::now()) {
            break;
        }
    }
    report.tracker().record_timeout(seq);
    Ok(())
}

enum PingResult {
    Answered,
    TimedOut,
    Failed(String),
}

/// Waits for the reply to a ping until `deadline` or the end of the run.
fn wait_for_reply(
    transport: &mut dyn PingTransport,
    expected: u32,
    deadline: Instant,
    is_over: &dyn Fn(Instant) -> bool,
    report: &mut Report,
) -> Result<PingResult> {
    loop {
        let now = Instant::now();
        if now >= deadline || is_over(now) {
            return Ok(PingResult::TimedOut);
        }
        match transport.wait((deadline - now).min(POLL_INTERVAL))? {
            PingEvent::Pong { seq, from } => {
                report.record_reply(seq, &from, Instant::now());
                if seq == expected {
                    return Ok(PingResult::Answered);
                }
            }
            PingEvent::Failed { seq, reason } if seq == expected => {
                return Ok(PingResult::Failed(reason));
            }
            PingEvent::Failed { .. } | PingEvent::Nothing => {}
        }
    }
}

/// Waits until the next ping is due. Records late and duplicate replies meanwhile.
fn wait_until_next(
    transport: &mut dyn PingTransport,
    due: Instant,
    is_over: &dyn Fn(Instant) -> bool,
    report: &mut Report,
) -> Result<()> {
    loop {
        let now = Instant::now();
        if now >= due || is_over(now) {
            return Ok(());
        }
        if let PingEvent::Pong { seq, from } = transport.wait((due - now).min(POLL_INTERVAL))? {
            report.record_reply(seq, &from, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribping::report::PingInfo;
    use std::collections::VecDeque;

    /// A transport with the events that follow each send.
    struct FakeTransport {
        events: VecDeque<Vec<PingEvent>>,
        pending: VecDeque<PingEvent>,
        sends: Vec<u32>,
    }

    impl PingTransport for FakeTransport {
        fn target(&self) -> String {
            "Lid 4".into()
        }
        fn name(&self) -> &'static str {
            "fake"
        }
        fn device(&self) -> String {
            "fake0".into()
        }
        fn port(&self) -> u8 {
            1
        }
        fn send(&mut self, seq: u32) -> Result<()> {
            self.sends.push(seq);
            self.pending
                .extend(self.events.pop_front().unwrap_or_default());
            Ok(())
        }
        fn wait(&mut self, timeout: Duration) -> Result<PingEvent> {
            Ok(self.pending.pop_front().unwrap_or_else(|| {
                std::thread::sleep(timeout.min(Duration::from_millis(1)));
                PingEvent::Nothing
            }))
        }
    }

    fn pong(seq: u32) -> PingEvent {
        PingEvent::Pong {
            seq,
            from: "node1".into(),
        }
    }

    fn config(count: u64, deadline: Option<Duration>) -> PingConfig {
        PingConfig {
            count,
            interval: Duration::from_millis(2),
            timeout: Duration::from_millis(10),
            tries: 1,
            deadline,
        }
    }

    #[test]
    fn count_with_deadline_requires_every_reply() {
        let counts = |received| PingCounts {
            transmitted: 3,
            received,
            ..PingCounts::default()
        };
        let deadline = Some(Duration::from_secs(1));
        for (config, received, is_success) in [
            (config(3, None), 0, false),
            (config(3, None), 1, true),
            (config(u64::MAX, deadline), 1, true),
            (config(3, deadline), 2, false),
            (config(3, deadline), 3, true),
        ] {
            assert_eq!(
                config.is_success(counts(received)),
                is_success,
                "{config:?} {received}"
            );
        }
    }

    fn run_with(events: Vec<Vec<PingEvent>>, tries: u32) -> (Report, Vec<u32>) {
        let mut transport = FakeTransport {
            events: events.into(),
            pending: VecDeque::new(),
            sends: Vec::new(),
        };
        let config = PingConfig {
            tries,
            ..config(3, None)
        };
        let info = PingInfo {
            target: transport.target(),
            transport: transport.name(),
            device: transport.device(),
            port: 1,
        };
        let mut report = Report::new(info, true, false);
        run(&mut transport, &config, &StopFlag::default(), &mut report).expect("no error");
        (report, transport.sends)
    }

    #[test]
    fn late_replies_count_as_received() {
        let (mut report, sends) = run_with(
            vec![vec![], vec![pong(0), pong(1)], vec![pong(2), pong(2)]],
            1,
        );
        let counts = report.tracker().counts();
        assert_eq!(sends, [0, 1, 2]);
        assert_eq!(
            (counts.transmitted, counts.received, counts.late),
            (3, 3, 1)
        );
    }

    #[test]
    fn second_replies_are_duplicates() {
        let (mut report, _) = run_with(
            vec![vec![pong(0), pong(0)], vec![pong(1)], vec![pong(2)]],
            1,
        );
        assert_eq!(report.tracker().counts().duplicates, 1);
    }

    #[test]
    fn pings_are_resent_up_to_the_tries() {
        let failed = PingEvent::Failed {
            seq: 0,
            reason: "timed out".into(),
        };
        let (mut report, sends) = run_with(
            vec![
                vec![failed.clone()],
                vec![failed],
                vec![pong(0)],
                vec![],
                vec![],
                vec![],
            ],
            3,
        );
        let counts = report.tracker().counts();
        assert_eq!(sends, [0, 0, 0, 1, 1, 1, 2, 2, 2]);
        assert_eq!(
            (counts.transmitted, counts.received, counts.resent),
            (3, 1, 6)
        );
        assert!(counts.received > 0 && config(3, None).is_success(counts));
    }

    #[test]
    fn the_deadline_ends_the_run() {
        let mut transport = FakeTransport {
            events: VecDeque::new(),
            pending: VecDeque::new(),
            sends: Vec::new(),
        };
        let config = PingConfig {
            count: u64::MAX,
            interval: Duration::from_secs(3600),
            timeout: Duration::from_secs(3600),
            tries: 9,
            deadline: Some(Duration::from_millis(20)),
        };
        let info = PingInfo {
            target: transport.target(),
            transport: transport.name(),
            device: transport.device(),
            port: 1,
        };
        let mut report = Report::new(info, true, false);
        run(&mut transport, &config, &StopFlag::default(), &mut report).expect("no error");
        assert_eq!(transport.sends, [0]);
        assert_eq!(report.counts().received, 0);
    }
}
