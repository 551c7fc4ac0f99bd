//! The loop: send, wait for the answer, wait for the time of the next.

use std::time::{Duration, Instant};

use super::args::PingArgs;
use super::report::Report;
use super::stop::{POLL_INTERVAL, StopFlag};
use super::tracker::PingCounts;
use super::transport::{PingEvent, PingTransport};
use crate::common::error::{Error, Result};

/// How to ping: what the command line asks for, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PingConfig {
    /// Pings to send.
    pub count: u64,
    /// From one to the next; none when flooding.
    pub interval: Duration,
    /// For each answer.
    pub timeout: Duration,
    /// How often a ping is sent until its answer comes.
    pub tries: u32,
    /// For all.
    pub deadline: Option<Duration>,
}

impl PingConfig {
    /// The plan of this command line.
    ///
    /// # Errors
    /// A number that makes no sense.
    pub fn new(args: &PingArgs) -> Result<Self> {
        for (name, value) in [
            ("--count", args.count.unwrap_or(1)),
            ("--timeout", args.timeout.into()),
            ("--tries", args.tries.into()),
        ] {
            if value == 0 {
                return Err(Error::usage(format!("{name} 0: at least 1")));
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
            timeout: args.patience(),
            tries: args.tries,
            deadline: args.deadline,
        })
    }

    /// Whether the exit status is 0, as ping's: an answer came; where a count and a deadline were
    /// given, that many.
    pub fn is_met(&self, counts: PingCounts) -> bool {
        let wanted = if self.deadline.is_some() && self.count < u64::MAX {
            self.count
        } else {
            1
        };
        counts.received >= wanted
    }
}

/// Pings until all are sent, the time is over or somebody wants it to end.
///
/// # Errors
/// The way is broken. What happened before is in the report all the same.
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
        if is_over(now) || report.is_unheard() {
            break;
        }
        // What was missed is not made up for: pings keep their distance.
        next = next.max(now) + config.interval;
        // Numbers wrap: only recent ones are told apart.
        #[allow(clippy::cast_possible_truncation, reason = "as said")]
        one(transport, config, number as u32, &is_over, report)?;
        if number + 1 < config.count {
            rest(transport, next, &is_over, report)?;
        }
    }
    Ok(())
}

/// One ping, up to its answer or the end of its time.
fn one(
    transport: &mut dyn PingTransport,
    config: &PingConfig,
    seq: u32,
    is_over: &dyn Fn(Instant) -> bool,
    report: &mut Report,
) -> Result<()> {
    for attempt in 0..config.tries {
        let now = Instant::now();
        if attempt == 0 {
            report.tracker().sent(seq, now);
        } else {
            report.tracker().resent();
        }
        transport.send(seq)?;
        let until = now + config.timeout;
        match heard(transport, seq, until, is_over, report)? {
            PingResult::Answered => return Ok(()),
            PingResult::Silence => report.failed(seq, "no answer in time"),
            PingResult::Failed(why) => report.failed(seq, &why),
        }
        if is_over(Instant::now()) {
            break;
        }
    }
    report.tracker().given_up(seq);
    Ok(())
}

enum PingResult {
    Answered,
    Silence,
    Failed(String),
}

/// Listens until this ping's answer, this time or the end of all.
fn heard(
    transport: &mut dyn PingTransport,
    wanted: u32,
    until: Instant,
    is_over: &dyn Fn(Instant) -> bool,
    report: &mut Report,
) -> Result<PingResult> {
    loop {
        let now = Instant::now();
        if now >= until || is_over(now) {
            return Ok(PingResult::Silence);
        }
        match transport.wait((until - now).min(POLL_INTERVAL))? {
            PingEvent::Pong { seq, from } => {
                report.answered(seq, &from, Instant::now());
                if seq == wanted {
                    return Ok(PingResult::Answered);
                }
            }
            PingEvent::Failed { seq, why } if seq == wanted => return Ok(PingResult::Failed(why)),
            PingEvent::Failed { .. } | PingEvent::Nothing => {}
        }
    }
}

/// Waits for the time of the next ping; late and second answers are heard.
fn rest(
    transport: &mut dyn PingTransport,
    until: Instant,
    is_over: &dyn Fn(Instant) -> bool,
    report: &mut Report,
) -> Result<()> {
    loop {
        let now = Instant::now();
        if now >= until || is_over(now) {
            return Ok(());
        }
        if let PingEvent::Pong { seq, from } = transport.wait((until - now).min(POLL_INTERVAL))? {
            report.answered(seq, &from, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ribping::report::PingInfo;
    use std::collections::VecDeque;

    /// Answers each ping as its plan says: `None` never.
    struct Fake {
        answers: VecDeque<Vec<PingEvent>>,
        pending: VecDeque<PingEvent>,
        sends: Vec<u32>,
    }

    impl PingTransport for Fake {
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
                .extend(self.answers.pop_front().unwrap_or_default());
            Ok(())
        }
        fn wait(&mut self, time: Duration) -> Result<PingEvent> {
            Ok(self.pending.pop_front().unwrap_or_else(|| {
                std::thread::sleep(time.min(Duration::from_millis(1)));
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
    fn with_a_count_and_a_deadline_all_must_be_answered() {
        let counts = |received| PingCounts {
            transmitted: 3,
            received,
            ..PingCounts::default()
        };
        let deadline = Some(Duration::from_secs(1));
        for (config, received, is_met) in [
            (config(3, None), 0, false),
            (config(3, None), 1, true),
            (config(u64::MAX, deadline), 1, true),
            (config(3, deadline), 2, false),
            (config(3, deadline), 3, true),
        ] {
            assert_eq!(
                config.is_met(counts(received)),
                is_met,
                "{config:?} {received}"
            );
        }
    }

    fn play(answers: Vec<Vec<PingEvent>>, tries: u32) -> (Report, Vec<u32>) {
        let mut transport = Fake {
            answers: answers.into(),
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
    fn a_silent_peer_is_a_loss_and_its_late_answer_is_none() {
        let (mut report, sends) = play(
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
    fn a_second_answer_is_a_duplicate() {
        let (mut report, _) = play(
            vec![vec![pong(0), pong(0)], vec![pong(1)], vec![pong(2)]],
            1,
        );
        assert_eq!(report.tracker().counts().duplicates, 1);
    }

    #[test]
    fn a_ping_is_sent_as_often_as_asked_for() {
        let failed = PingEvent::Failed {
            seq: 0,
            why: "timed out".into(),
        };
        let (mut report, sends) = play(
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
        assert!(counts.received > 0 && config(3, None).is_met(counts));
    }

    #[test]
    fn the_deadline_ends_it() {
        let mut transport = Fake {
            answers: VecDeque::new(),
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
