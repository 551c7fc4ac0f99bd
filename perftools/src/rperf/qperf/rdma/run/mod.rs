//! The loops. Each end stops by its own clock; what is under way then is lost, and counts nowhere.

mod memory;
mod messages;

use std::time::{Duration, Instant};

use ibverbs::{Direction, Held, SharedRegion, wr};

use crate::common::error::{Error, Kind, Result};
use crate::rperf::engine::pin::Pinned;
use crate::rperf::engine::{Measurement, Peer};
use crate::rperf::qperf::control_conn::ControlConn;
use crate::rperf::qperf::rdma::{LoopKind, QperfEndpoint};
use crate::rperf::spec::modes::Wait;
use crate::rperf::spec::plan::Verb;
use crate::rperf::spec::{Limit, Side, Spec};
use crate::rperf::stats::cpu::ClockReading;
use crate::rperf::stats::latency::LatencyRecorder;
use crate::rperf::stats::{Count, SideStats};

/// The longest sleep: how late the clock is seen.
const NAP: Duration = Duration::from_millis(10);
/// Empty polls between looks at the clock, and at the peer.
const POLLS_PER_CLOCK: u32 = 16;
const LOOK_AFTER: Duration = Duration::from_millis(100);

struct Run<'a> {
    end: &'a mut QperfEndpoint,
    conn: &'a ControlConn,
    size: u64,
    total: u64,
    polled: bool,
    deadline: Option<Instant>,
    looked: Instant,
    idle: u32,
    /// Completed, not only posted.
    sent: u64,
    received: u64,
    /// Bytes of results that were as they have to be.
    verified: u64,
    max_cqe: u32,
}

/// Runs the test: posts its receives, synchronizes, moves data. `begins` is told when it begins.
///
/// # Errors
/// The connection broke, the peer failed, or a result was wrong.
pub(in crate::rperf::qperf) fn run(
    end: &mut QperfEndpoint,
    spec: &Spec,
    side: &Side,
    conn: &ControlConn,
    begins: &dyn Fn(),
) -> Result<Measurement> {
    let part = end.part;
    let (time, total) = match spec.limit {
        Limit::Time(time) => (Some(time), u64::MAX),
        Limit::Messages(n) => (None, n),
    };
    let mut run = Run {
        end,
        conn,
        size: spec.msg_size,
        total,
        polled: side.wait == Wait::Poll,
        deadline: None,
        looked: Instant::now(),
        idle: 0,
        sent: 0,
        received: 0,
        verified: 0,
        max_cqe: 0,
    };
    let _pinned = Pinned::to(side.cpus.as_ref())?;
    run.prepare(part)?;
    conn.before()?;
    begins();
    let latency = matches!(
        part,
        LoopKind::Ping(_) | LoopKind::Look { first: true } | LoopKind::Source { one: true, .. }
    );
    let mut latencies = latency.then(LatencyRecorder::default);
    let start = ClockReading::now();
    run.deadline = time.and_then(|time| start.wall().checked_add(time));
    let done = match part {
        LoopKind::Source { verb, one } => run.source(verb, one, &mut latencies),
        LoopKind::Sink => run.sink(),
        LoopKind::Both => run.both(),
        LoopKind::Ping(verb) | LoopKind::Pong(verb) => {
            run.ping_pong(verb, matches!(part, LoopKind::Ping(_)), &mut latencies)
        }
        LoopKind::Look { first } => run.look_for_marks(first, &mut latencies),
        LoopKind::Verify(verb) => run.verify(verb),
        LoopKind::Idle => run.idle_until_over(),
    };
    let stop = ClockReading::of_counts();
    done.map_err(|error| {
        if error.kind() == Kind::Device {
            conn.explain(error)
        } else {
            error
        }
    })?;
    let count = |msgs: u64| Count {
        msgs,
        bytes: msgs * run.size,
    };
    let fetches = matches!(
        part,
        LoopKind::Source {
            verb: Verb::Read,
            ..
        }
    );
    let stats = SideStats {
        sent: if fetches {
            Count::default()
        } else {
            count(run.sent)
        },
        received: if fetches {
            count(run.sent)
        } else {
            count(run.received)
        },
        nanos: u64::try_from(stop.wall().duration_since(start.wall()).as_nanos())
            .unwrap_or(u64::MAX),
        max_cqe: run.max_cqe,
        cpu: stop.since(&start),
        verified: run.verified,
        ..SideStats::default()
    };
    Ok(Measurement {
        stats,
        latency: latencies,
    })
}

impl Run<'_> {
    /// What has to be there before the peer begins.
    fn prepare(&mut self, part: LoopKind) -> Result<()> {
        match part {
            LoopKind::Sink | LoopKind::Both => self.post_receives(self.end.depth),
            LoopKind::Ping(_) | LoopKind::Pong(_) => self.post_receives(1),
            LoopKind::Look { first } => self.mark(first),
            LoopKind::Source { .. } | LoopKind::Verify(_) | LoopKind::Idle => Ok(()),
        }
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        let held = self.end.held;
        for _ in 0..count {
            self.end.connection.qp_mut().post_recv(wr::recv(held))?;
        }
        Ok(())
    }

    /// Posts a message.
    fn post(&mut self, verb: Verb) -> Result<()> {
        let (message, remote) = (self.message()?, self.end.remote);
        let qp = self.end.connection.qp_mut();
        match verb {
            Verb::Send => qp.post_send(wr::send(message))?,
            Verb::Write => qp.post_send(wr::write(message, remote))?,
            Verb::WriteImm => qp.post_send(wr::write_with_imm(message, remote, 0))?,
            Verb::Read => qp.post_send(wr::read(message, remote))?,
            Verb::CompareSwap => qp.post_send(wr::compare_swap(message, remote, 0, 0))?,
            Verb::FetchAdd => qp.post_send(wr::fetch_add(message, remote, 0))?,
        }
        Ok(())
    }

    /// The memory of a message: the region is rounded up to words.
    fn message(&self) -> Result<Held<SharedRegion>> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        self.end
            .held
            .slice(0..size)
            .ok_or_else(|| Error::limit("the message is larger than its memory"))
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Takes what has completed: sends, receives.
    fn poll(&mut self) -> Result<(u32, u32)> {
        let (mut sends, mut receives) = (0, 0);
        let qp = self.end.connection.qp_mut();
        for completion in self.end.cq.poll()? {
            let Ok(retired) = qp.retire(completion) else {
                continue;
            };
            retired.ok()?;
            if retired.direction() == Direction::Send {
                sends += 1;
            } else {
                receives += 1;
            }
        }
        self.sent += u64::from(sends);
        self.received += u64::from(receives);
        if sends + receives > 0 {
            self.idle = 0;
            self.max_cqe = self.max_cqe.max(sends + receives);
        }
        Ok((sends, receives))
    }

    /// Waits until something completes; nothing where the clock came first.
    fn wait(&mut self) -> Result<(u32, u32)> {
        loop {
            let got = self.poll()?;
            if got != (0, 0) {
                return Ok(got);
            }
            self.idle += 1;
            if self.polled {
                std::thread::yield_now();
                if self.idle % POLLS_PER_CLOCK != 0 {
                    continue;
                }
            } else {
                self.end.cq.arm(false)?;
                let got = self.poll()?;
                if got != (0, 0) {
                    return Ok(got);
                }
                self.end.channel.wait(Some(NAP))?;
            }
            if self.is_over() {
                return Ok((0, 0));
            }
            self.check_liveness()?;
        }
    }

    /// Whether there is still somebody to wait for.
    fn check_liveness(&mut self) -> Result<()> {
        if self.looked.elapsed() < LOOK_AFTER {
            return Ok(());
        }
        self.looked = Instant::now();
        if let Some(failure) = self.conn.failure() {
            return Err(failure);
        }
        self.end.check()
    }

    fn idle_until_over(&mut self) -> Result<()> {
        while !self.is_over() {
            std::thread::sleep(NAP);
            self.check_liveness()?;
        }
        Ok(())
    }
}

/// Notes the time since `before`, shared by so many ways; returns now.
fn record(latencies: &mut LatencyRecorder, before: Instant, ways: u128) -> Instant {
    let now = Instant::now();
    latencies
        .record(u64::try_from(now.duration_since(before).as_nanos() / ways).unwrap_or(u64::MAX));
    now
}
