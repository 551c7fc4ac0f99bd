//! The timed loops of a test over RDMA with a qperf. Each end stops by its own clock; messages in
//! flight at that time are not counted.

mod memory;
mod messages;

use std::ops::Range;
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use ibverbs::{Direction, Held, SharedRegion, wr};
use measure::engine::pin::Pinned;
use measure::engine::wait_loop::{PollSource, WaitLoop};
use measure::engine::{Measurement, Peer};
use measure::spec::modes::Wait;
use measure::spec::plan::Verb;
use measure::spec::{Limit, Side, Spec};
use measure::stats::cpu::ClockReading;
use measure::stats::latency::LatencyRecorder;
use measure::stats::{Count, SideStats};

use crate::qperf::control_conn::ControlConn;
use crate::qperf::rdma::{QperfEndpoint, QperfLoop};

/// Interval between checks of the deadline in an end that only waits.
const IDLE_INTERVAL: Duration = Duration::from_millis(10);
/// Shortest time between two checks of the connections.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

struct Run<'a> {
    io: Completions<'a>,
    waiter: WaitLoop,
    size: u64,
    total: u64,
    deadline: Option<Instant>,
    /// Bytes of results that were checked.
    verified: u64,
}

/// The completion queue of an end, and the messages that completed on it.
struct Completions<'a> {
    end: &'a mut QperfEndpoint,
    conn: &'a ControlConn,
    last_check: Instant,
    /// Sends that completed.
    sent: u64,
    /// Receives that completed.
    received: u64,
    max_cqe: u32,
}

/// Runs the test: posts receives, synchronizes with the peer and moves data. Calls `begins` when
/// the test begins.
pub(in crate::qperf) fn run(
    end: &mut QperfEndpoint,
    spec: &Spec,
    side: &Side,
    conn: &ControlConn,
    begins: &dyn Fn(),
) -> Result<Measurement> {
    let loop_kind = end.loop_kind;
    let (time, total) = match spec.limit {
        Limit::Time(time) => (Some(time), u64::MAX),
        Limit::Messages(n) => (None, n),
    };
    let mode = if side.wait == Wait::Poll {
        Wait::Poll
    } else {
        Wait::Events
    };
    let mut run = Run {
        io: Completions {
            end,
            conn,
            last_check: Instant::now(),
            sent: 0,
            received: 0,
            max_cqe: 0,
        },
        waiter: WaitLoop::new(mode, false).yielding(),
        size: spec.msg_size,
        total,
        deadline: None,
        verified: 0,
    };
    let _pinned = Pinned::to(side.cpus.as_ref())?;
    run.prepare(loop_kind)?;
    conn.synchronize_before()?;
    begins();
    let latency = matches!(
        loop_kind,
        QperfLoop::Ping(_)
            | QperfLoop::PollMemory { first: true }
            | QperfLoop::Source { one: true, .. }
    );
    let mut latencies = latency.then(LatencyRecorder::default);
    let start = ClockReading::now();
    run.deadline = time.and_then(|time| start.wall().checked_add(time));
    let done = match loop_kind {
        QperfLoop::Source { verb, one } => run.source(verb, one, &mut latencies),
        QperfLoop::Sink => run.sink(),
        QperfLoop::Both => run.both(),
        QperfLoop::Ping(verb) | QperfLoop::Pong(verb) => run.ping_pong(
            verb,
            matches!(loop_kind, QperfLoop::Ping(_)),
            &mut latencies,
        ),
        QperfLoop::PollMemory { first } => run.poll_for_marks(first, &mut latencies),
        QperfLoop::Verify(verb) => run.verify(verb),
        QperfLoop::Idle => run.idle_until_over(),
    };
    let stop = ClockReading::now_wall_first();
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
        loop_kind,
        QperfLoop::Source {
            verb: Verb::Read,
            ..
        }
    );
    let stats = SideStats {
        sent: if fetches {
            Count::default()
        } else {
            count(run.io.sent)
        },
        received: if fetches {
            count(run.io.sent)
        } else {
            count(run.io.received)
        },
        nanos: u64::try_from(stop.wall().duration_since(start.wall()).as_nanos())
            .unwrap_or(u64::MAX),
        max_cqe: Some(run.io.max_cqe),
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
    /// Posts or writes what must be there before the peer begins.
    fn prepare(&mut self, loop_kind: QperfLoop) -> Result<()> {
        match loop_kind {
            QperfLoop::Sink | QperfLoop::Both => self.post_receives(self.io.end.depth),
            QperfLoop::Ping(_) | QperfLoop::Pong(_) => self.post_receives(1),
            QperfLoop::PollMemory { first } => self.write_mark(first),
            QperfLoop::Source { .. } | QperfLoop::Verify(_) | QperfLoop::Idle => Ok(()),
        }
    }

    fn post_receives(&mut self, count: u32) -> Result<()> {
        let held = self.io.end.held;
        for _ in 0..count {
            self.io.end.connection.qp_mut().post_recv(wr::recv(held))?;
        }
        Ok(())
    }

    /// Posts a message.
    fn post(&mut self, verb: Verb) -> Result<()> {
        let (message, remote) = (self.message()?, self.io.end.remote);
        let qp = self.io.end.connection.qp_mut();
        match verb {
            // qperf has no option for immediate data in sends.
            Verb::Send | Verb::SendImm => qp.post_send(wr::send(message))?,
            Verb::Write => qp.post_send(wr::write(message, remote))?,
            Verb::WriteImm => qp.post_send(wr::write_with_imm(message, remote, 0))?,
            Verb::Read => qp.post_send(wr::read(message, remote))?,
            Verb::CompareSwap => qp.post_send(wr::compare_swap(message, remote, 0, 0))?,
            Verb::FetchAdd => qp.post_send(wr::fetch_add(message, remote, 0))?,
        }
        Ok(())
    }

    /// Returns the memory of a message. The region itself is rounded up to whole words.
    fn message(&self) -> Result<Held<SharedRegion>> {
        let size = usize::try_from(self.size).unwrap_or(usize::MAX);
        self.io
            .end
            .held
            .slice(0..size)
            .ok_or_else(|| Error::limit("the message size exceeds the size of the memory"))
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|end| Instant::now() >= end)
    }

    /// Waits until something completes and returns the number of sends and of receives. Both are 0
    /// if the time was over first, or after each time of sleeping without a completion.
    fn wait(&mut self) -> Result<(u32, u32)> {
        let completed = self.waiter.wait(&mut self.io, self.deadline)?;
        if completed.is_some() {
            self.waiter.reset();
        }
        Ok(completed.unwrap_or_default())
    }

    fn idle_until_over(&mut self) -> Result<()> {
        while !self.is_over() {
            std::thread::sleep(IDLE_INTERVAL);
            self.io.check_liveness(Instant::now())?;
        }
        Ok(())
    }
}

impl Completions<'_> {
    /// Polls the completion queue and returns the number of sends and of receives that completed.
    fn poll_cq(&mut self) -> Result<(u32, u32)> {
        let (mut sends, mut receives) = (0, 0);
        let qp = self.end.connection.qp_mut();
        for completion in self.end.cq.poll()? {
            let Ok(retired) = qp.retire(completion) else {
                continue;
            };
            retired.check()?;
            if retired.direction() == Direction::Send {
                sends += 1;
            } else {
                receives += 1;
            }
        }
        self.sent += u64::from(sends);
        self.received += u64::from(receives);
        self.max_cqe = self.max_cqe.max(sends + receives);
        Ok((sends, receives))
    }

    /// Checks the control connection and the RDMA connection, unless that was done recently.
    fn check_liveness(&mut self, now: Instant) -> Result<()> {
        if now.duration_since(self.last_check) < CHECK_INTERVAL {
            return Ok(());
        }
        self.last_check = now;
        if let Some(failure) = self.conn.failure() {
            return Err(failure);
        }
        self.end.check_connected()
    }
}

impl PollSource for Completions<'_> {
    type Event = (u32, u32);

    #[inline]
    fn poll(&mut self) -> Result<Option<(u32, u32)>> {
        let completed = self.poll_cq()?;
        Ok((completed != (0, 0)).then_some(completed))
    }

    fn block(&mut self, limit: Duration) -> Result<Option<(u32, u32)>> {
        if let Some(completed) = self.poll()? {
            return Ok(Some(completed));
        }
        self.end.cq.arm(false)?;
        // A completion that arrived before `arm` does not cause an event.
        if let Some(completed) = self.poll()? {
            return Ok(Some(completed));
        }
        self.end.channel.wait(Some(limit))?;
        self.poll()
    }

    fn check(&mut self, idle: Range<Instant>) -> Result<()> {
        self.check_liveness(idle.end)
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Records the time since `before`, divided by the number of messages in it; returns now.
fn record(latencies: &mut LatencyRecorder, before: Instant, messages: u128) -> Instant {
    let now = Instant::now();
    let nanos = now.duration_since(before).as_nanos() / messages;
    latencies.record(u64::try_from(nanos).unwrap_or(u64::MAX));
    now
}
