//! The ping loop: send a ping, wait for its reply, wait until the next ping is due.

use std::time::{Duration, Instant};

use base::error::{Error, Result};

use super::args::PingArgs;
use super::report::PingReport;
use super::stop::{POLL_INTERVAL, StopFlag};
use super::tracker::PingCounts;
use super::transport::{Link, NO_REPLY, PingEvent};

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
    /// Returns [`Kind::Usage`](base::error::Kind::Usage) if an option is out of range.
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
    pub(crate) fn is_success(&self, counts: PingCounts) -> bool {
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
/// A failed transport loses the ping in flight. It is opened again for the next ping.
pub(crate) fn run(
    link: &mut Link<'_>,
    config: &PingConfig,
    stop: &StopFlag,
    report: &mut PingReport,
) {
    let start = Instant::now();
    let end = config.deadline.map(|deadline| start + deadline);
    let is_over = |now: Instant| stop.is_set() || end.is_some_and(|end| now >= end);
    let mut next = start;
    let mut session = Session {
        link,
        config,
        stop,
        report,
        is_over: &is_over,
        has_explained: false,
    };
    for number in 0..config.count {
        let now = Instant::now();
        if is_over(now) || session.report.is_output_closed() {
            break;
        }
        // A delayed ping delays the next ones too, so that the interval is never shorter.
        next = next.max(now) + config.interval;
        #[allow(
            clippy::cast_possible_truncation,
            reason = "sequence numbers wrap, and only recent ones are compared"
        )]
        let seq = number as u32;
        let is_answered = session.ping(seq);
        if !session.link.is_open() {
            // Do not open a transport in a busy loop when flooding.
            next = next.max(Instant::now() + config.interval.max(REOPEN_INTERVAL));
        }
        if number + 1 < config.count {
            session.wait_until(next);
        } else if !is_answered {
            session.explain_silence();
        }
    }
}

/// Minimum time between two attempts to open a failed transport.
const REOPEN_INTERVAL: Duration = Duration::from_millis(200);

struct Session<'a, 'l> {
    link: &'a mut Link<'l>,
    config: &'a PingConfig,
    stop: &'a StopFlag,
    report: &'a mut PingReport,
    is_over: &'a dyn Fn(Instant) -> bool,
    has_explained: bool,
}

impl Session<'_, '_> {
    /// Sends one ping, up to `tries` times, and waits for its reply. Returns `true` if there is
    /// one.
    fn ping(&mut self, seq: u32) -> bool {
        self.report.tracker().record_sent(seq, Instant::now());
        let mut reason = None;
        let mut failure = String::new();
        for attempt in 0..self.config.tries {
            if attempt > 0 {
                self.report.tracker().record_resend();
            }
            failure = match self.attempt(seq) {
                Ok(PingResult::Answered) => return true,
                Ok(PingResult::TimedOut) => NO_REPLY.to_owned(),
                Ok(PingResult::Failed(text)) => text,
                Err(error) => {
                    reason = Some(self.link.close_after(&error));
                    break;
                }
            };
            self.report.log_failure(seq, &failure);
            if (self.is_over)(Instant::now()) {
                break;
            }
        }
        self.report.tracker().record_timeout(seq);
        if let Some(reason) = reason {
            self.report.record_failed_transport(seq, &reason);
        } else if let Some(fault) = self.link.local_fault() {
            self.report.record_fault(seq, &fault);
        } else if !(self.is_over)(Instant::now()) || self.config.count == u64::from(seq) + 1 {
            self.report.record_lost(seq, &failure);
        }
        false
    }

    /// Sends a ping once and waits for its reply.
    fn attempt(&mut self, seq: u32) -> Result<PingResult> {
        let was_open = self.link.is_open();
        let transport = self.link.transport()?;
        if !was_open {
            self.report.record_opened(transport);
        }
        let now = Instant::now();
        self.report.tracker().record_time(seq, now);
        transport.send(seq)?;
        self.wait_for_reply(seq, now + self.config.timeout)
    }

    /// Waits for the reply to a ping until `deadline` or the end of the run.
    fn wait_for_reply(&mut self, expected: u32, deadline: Instant) -> Result<PingResult> {
        loop {
            let now = Instant::now();
            if now >= deadline || (self.is_over)(now) {
                return Ok(PingResult::TimedOut);
            }
            match self.wait((deadline - now).min(POLL_INTERVAL))? {
                PingEvent::Pong { seq, from } => {
                    self.report.record_reply(seq, &from, Instant::now());
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

    /// Waits for an event, and prints statistics if a signal requests them.
    fn wait(&mut self, timeout: Duration) -> Result<PingEvent> {
        if self.stop.take_statistics_request() {
            self.report.print_progress();
        }
        self.link.transport()?.wait(timeout)
    }

    /// Waits until the next ping is due. Records late and duplicate replies meanwhile.
    fn wait_until(&mut self, due: Instant) {
        loop {
            let now = Instant::now();
            if now >= due || (self.is_over)(now) {
                return;
            }
            let timeout = (due - now).min(POLL_INTERVAL);
            if !self.link.is_open() {
                if self.stop.take_statistics_request() {
                    self.report.print_progress();
                }
                std::thread::sleep(timeout);
                continue;
            }
            match self.wait(timeout) {
                Ok(PingEvent::Pong { seq, from }) => {
                    self.report.record_reply(seq, &from, Instant::now());
                }
                Ok(_) => {}
                Err(error) => {
                    let reason = self.link.close_after(&error);
                    self.report.log_closed(&reason);
                }
            }
        }
    }

    /// Records what is known about a target that has never replied.
    fn explain_silence(&mut self) {
        if self.has_explained || self.report.counts().received > 0 || !self.link.is_open() {
            return;
        }
        self.has_explained = true;
        if let Ok(transport) = self.link.transport() {
            if let Some(note) = transport.explain_silence() {
                self.report.set_note(note);
            }
        }
    }
}

enum PingResult {
    Answered,
    TimedOut,
    Failed(String),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribping::report::PingInfo;
    use crate::ribping::transport::PingTransport;
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::rc::Rc;

    /// The consequence of a send: events, or the failure of the transport.
    type Reply = std::result::Result<Vec<PingEvent>, &'static str>;

    /// The state of a transport, which outlives its failures.
    #[derive(Default)]
    struct Script {
        replies: VecDeque<Reply>,
        pending: VecDeque<PingEvent>,
        sends: Vec<u32>,
        opened: u32,
        /// The errors of the next attempts to open the transport.
        open_errors: VecDeque<Option<&'static str>>,
    }

    struct FakeTransport(Rc<RefCell<Script>>);

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
            let mut script = self.0.borrow_mut();
            script.sends.push(seq);
            match script.replies.pop_front() {
                Some(Err(error)) => Err(Error::device(error)),
                Some(Ok(events)) => {
                    script.pending.extend(events);
                    Ok(())
                }
                None => Ok(()),
            }
        }
        fn wait(&mut self, timeout: Duration) -> Result<PingEvent> {
            let event = self.0.borrow_mut().pending.pop_front();
            Ok(event.unwrap_or_else(|| {
                std::thread::sleep(timeout.min(Duration::from_millis(1)));
                PingEvent::Nothing
            }))
        }
        fn explain_silence(&mut self) -> Option<String> {
            Some("reachable".into())
        }
    }

    fn link(script: &Rc<RefCell<Script>>) -> Link<'static> {
        let script = Rc::clone(script);
        Link::new(Box::new(move || {
            if let Some(Some(error)) = script.borrow_mut().open_errors.pop_front() {
                return Err(Error::device(error));
            }
            script.borrow_mut().opened += 1;
            Ok(Box::new(FakeTransport(Rc::clone(&script))))
        }))
    }

    fn report() -> PingReport {
        let info = PingInfo {
            target: "Lid 4".into(),
            transport: "fake",
            device: "fake0".into(),
            port: 1,
        };
        PingReport::new(info, true, false)
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
            // Long enough for a process that is not run for a while.
            timeout: Duration::from_millis(200),
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

    fn run_script(script: Script, config: &PingConfig) -> (PingReport, Rc<RefCell<Script>>) {
        let script = Rc::new(RefCell::new(script));
        let mut report = report();
        run(
            &mut link(&script),
            config,
            &StopFlag::default(),
            &mut report,
        );
        (report, script)
    }

    fn run_with(events: Vec<Vec<PingEvent>>, tries: u32) -> (PingReport, Vec<u32>) {
        let script = Script {
            replies: events.into_iter().map(Ok).collect(),
            ..Script::default()
        };
        let config = PingConfig {
            tries,
            ..config(3, None)
        };
        let (report, script) = run_script(script, &config);
        let sends = script.borrow().sends.clone();
        (report, sends)
    }

    #[test]
    fn failed_transport_is_opened_again_and_its_pings_are_lost() {
        let script = Script {
            replies: [Ok(vec![pong(0)]), Err("link lost"), Ok(vec![pong(3)])].into(),
            open_errors: [None, Some("no route")].into(),
            ..Script::default()
        };
        let (report, script) = run_script(script, &config(4, None));
        let counts = report.counts();
        assert_eq!(
            (script.borrow().sends.as_slice(), script.borrow().opened),
            (&[0, 1, 3][..], 2)
        );
        assert_eq!(
            (counts.transmitted, counts.received, counts.lost()),
            (4, 2, 2)
        );
        let text = report.text(true);
        let document: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(document["reconnects"], 1, "{text}");
        assert_eq!(document["last_error"], "no route", "{text}");
    }

    #[test]
    fn silent_target_is_explained() {
        let (report, _) = run_script(Script::default(), &config(1, None));
        let document: serde_json::Value = serde_json::from_str(&report.text(true)).expect("JSON");
        assert_eq!(document["last_loss"], NO_REPLY, "{document}");
        assert!(
            report.text(false).contains("reachable"),
            "{}",
            report.text(false)
        );
        let script = Script {
            replies: [Ok(vec![pong(0)])].into(),
            ..Script::default()
        };
        let (report, _) = run_script(script, &config(2, None));
        assert!(!report.text(false).contains("reachable"));
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
        let config = PingConfig {
            count: u64::MAX,
            interval: Duration::from_secs(3600),
            timeout: Duration::from_secs(3600),
            tries: 9,
            deadline: Some(Duration::from_millis(20)),
        };
        let (report, script) = run_script(Script::default(), &config);
        assert_eq!(script.borrow().sends, [0]);
        assert_eq!(report.counts().received, 0);
    }
}
