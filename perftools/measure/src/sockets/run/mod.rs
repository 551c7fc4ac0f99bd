//! The timed loops of a test over sockets. [`SocketLoop`] selects the loop of an end.

mod bandwidth;
mod ping_pong;
mod time_limit;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base::error::{Error, Kind as Failure, Result};
use base::memory::zeroed;
use base::units::show_time;
use host::tcp;

use crate::engine::arrivals::Arrivals;
use crate::engine::payload;
use crate::engine::wait_loop::{PollSource, WaitLoop};
use crate::engine::{Measurement, Peer, Role};
use crate::sockets::message_socket::{MessageSocket, ReceivedMessage, Sent};
use crate::sockets::{EndMode, LoopParams, SocketKind};
use crate::spec::Limit;
use crate::spec::modes::Wait;
use crate::stats::cpu::ClockReading;
use crate::stats::jitter::Jitter;
use crate::stats::latency::LatencyRecorder;
use crate::stats::thread_counters::ThreadCounters;
use crate::stats::{Count, SideStats};
use time_limit::TimeLimit;

/// Length in bytes of the number at the start of a datagram.
const NUMBER_LEN: usize = 8;

/// The loop that an end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketLoop {
    /// Sends as fast as possible.
    Source,
    /// Receives.
    Sink,
    /// Sends, waits for the reply and measures the time.
    Ping,
    /// Replies.
    Pong,
}

impl SocketLoop {
    /// Returns the loop of `role` in a latency test or in a bandwidth test. With `flip` it is the
    /// loop of the other role.
    pub(crate) fn new(role: Role, latency: bool, flip: bool) -> Self {
        let role = match role {
            Role::Server if flip => Role::Client,
            Role::Client if flip => Role::Server,
            role => role,
        };
        match (role, latency) {
            (Role::Client, false) => SocketLoop::Source,
            (Role::Server, false) => SocketLoop::Sink,
            (Role::Client, true) => SocketLoop::Ping,
            (Role::Server, true) => SocketLoop::Pong,
        }
    }
}

/// Length in bytes of the time in a datagram, after its number.
const TIME_LEN: usize = 8;

/// State of a running loop.
struct SocketRun<'a, P> {
    socket: &'a mut MessageSocket,
    params: &'a LoopParams,
    peer: &'a P,
    waiter: WaitLoop,
    time_limit: TimeLimit,
    /// Calls on the socket block.
    blocks: bool,
    buffer: Vec<u8>,
    sent: Count,
    received: Count,
    verified: u64,
    /// Datagrams that never arrived.
    lost: u64,
    /// Datagrams that arrived again.
    duplicates: u64,
    /// Jitter of the datagrams that arrived, if they carry the time at which they were sent.
    jitter: Option<Jitter>,
    /// Start of the loop, from which the times of datagrams count.
    start: Instant,
    /// Numbers of the datagrams that arrived, if datagrams carry numbers.
    arrivals: Option<Arrivals>,
    counters: Option<Arc<ThreadCounters>>,
    /// Messages sent and received until the clock was stopped, and the time.
    counted: Option<(Count, Count, ClockReading)>,
}

/// Runs a loop over a socket, which must be non-blocking if `polled` is set.
pub(crate) fn run<P: Peer>(
    loop_kind: SocketLoop,
    socket: &mut MessageSocket,
    params: &LoopParams,
    polled: bool,
    peer: &P,
) -> Result<Measurement> {
    let mut latencies = (loop_kind == SocketLoop::Ping)
        .then(|| LatencyRecorder::new(peer.counters()).with_samples(params.samples));
    let mut buffer = zeroed(params.size)?;
    params.payload.fill(&mut buffer, 0);
    // The first reading on a host can load modules of the kernel, which takes longer than a short
    // test.
    let retransmitted_before = socket.retransmitted();
    let start = ClockReading::now();
    let duration = match params.limit {
        Limit::Time(time) => Some(time),
        Limit::Messages(_) => None,
    };
    // qperf's datagrams carry no numbers.
    let is_numbered = socket.kind().is_datagram()
        && params.size >= NUMBER_LEN
        && params.end_mode == EndMode::Announced;
    let mut run = SocketRun {
        socket,
        params,
        peer,
        // Both ends may share a processor, so every empty poll yields it.
        waiter: WaitLoop::new(if polled { Wait::Poll } else { Wait::Events }, false).yielding(),
        time_limit: TimeLimit::new(start.wall(), duration),
        blocks: !polled,
        buffer,
        sent: Count::default(),
        received: Count::default(),
        verified: 0,
        lost: 0,
        duplicates: 0,
        // The times of a latency test show more than their jitter.
        jitter: (is_numbered
            && matches!(loop_kind, SocketLoop::Source | SocketLoop::Sink)
            && !params.verify
            && params.size >= NUMBER_LEN + TIME_LEN)
            .then(Jitter::default),
        start: start.wall(),
        arrivals: is_numbered.then(Arrivals::default),
        counters: peer.counters(),
        counted: None,
    };
    run.prepare_message(0);
    match (loop_kind, &mut latencies) {
        (SocketLoop::Source, _) => run.source(),
        (SocketLoop::Sink, _) => run.sink(),
        (SocketLoop::Ping, Some(latencies)) => run.ping(start.wall(), latencies),
        (SocketLoop::Ping | SocketLoop::Pong, _) => run.pong(),
    }
    .map_err(|error| {
        // A reset is the cause of what it led to.
        let error = run.socket.take_reset().unwrap_or(error);
        if error.kind() == Failure::Device {
            peer.explain(error)
        } else {
            error
        }
    })?;
    let (sent, received, end) = run
        .counted
        .unwrap_or_else(|| (run.sent, run.received, ClockReading::now_wall_first()));
    let stats = SideStats {
        sent,
        received,
        nanos: u64::try_from(end.wall().duration_since(start.wall()).as_nanos())
            .unwrap_or(u64::MAX),
        cpu: end.since(&start),
        verified: run.verified,
        lost: run.lost,
        duplicates: run.duplicates,
        jitter: run.jitter.and_then(|jitter| jitter.nanos()),
        retransmitted: tcp::increase(retransmitted_before, run.socket.retransmitted()),
        ..SideStats::default()
    };
    Ok(Measurement {
        stats,
        latency: latencies,
    })
}

impl<P: Peer> SocketRun<'_, P> {
    fn total(&self) -> u64 {
        match self.params.limit {
            Limit::Messages(n) => n,
            Limit::Time(_) => u64::MAX,
        }
    }

    /// Returns `true` if the time is over or the test was interrupted. `moved` is `true` after a
    /// message.
    #[inline]
    fn is_over(&mut self, moved: bool) -> bool {
        let is_time_over = if moved {
            self.time_limit.is_over_after_message()
        } else {
            self.time_limit.is_over()
        };
        is_time_over || self.peer.is_interrupted()
    }

    fn stop_clock(&mut self) {
        if self.counted.is_none() {
            self.counted = Some((self.sent, self.received, ClockReading::now_wall_first()));
        }
    }

    /// Returns the end of the time for loops that wait no longer than that.
    fn wait_limit(&self) -> Option<Instant> {
        self.time_limit
            .deadline()
            .filter(|_| self.params.end_mode == EndMode::Clock)
    }

    /// Repeats `step` until it returns a result. Returns `None` if `until` passed or the peer
    /// finished first, and after each call that blocked for its full time. A call that blocks has
    /// a time limit of its own, so `until` is not compared with the clock.
    fn wait<T>(
        &mut self,
        until: Option<Instant>,
        mut step: impl FnMut(&mut MessageSocket, &mut [u8]) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let kind = self.socket.kind();
        let (socket, buffer) = (&mut *self.socket, &mut self.buffer);
        let mut source = SocketSource {
            step: || step(socket, buffer),
            peer: self.peer,
            params: self.params,
            kind,
        };
        self.waiter
            .wait(&mut source, until.filter(|_| !self.blocks))
    }

    /// Checks that the peer is alive and the timeout has not passed.
    fn check_liveness(&mut self) -> Result<()> {
        let mut source = SocketSource {
            step: || Ok(None::<()>),
            peer: self.peer,
            params: self.params,
            kind: self.socket.kind(),
        };
        self.waiter.check(&mut source)
    }

    /// Sends the message in the buffer, or continues to. Returns `true` when all of it is sent.
    fn send(&mut self, until: Option<Instant>) -> Result<bool> {
        let step = |socket: &mut MessageSocket, message: &mut [u8]| {
            let sent = socket.send(message)?;
            Ok((sent != Sent::Nothing).then_some(sent))
        };
        let Some(sent) = self.wait(until, step)? else {
            return Ok(false);
        };
        self.waiter.reset();
        if sent == Sent::Part {
            return Ok(false);
        }
        self.sent.msgs += 1;
        self.sent.bytes += self.params.size as u64;
        if let Some(counters) = &self.counters {
            counters.set_sent(self.sent.msgs);
        }
        Ok(true)
    }

    /// Fills the buffer with the payload of message `number`, if payload is verified. Otherwise
    /// only writes the number, if datagrams carry numbers.
    fn prepare_message(&mut self, number: u64) {
        if self.params.verify {
            self.params.payload.fill(&mut self.buffer, number);
        }
        if self.arrivals.is_some() {
            payload::write_number(&mut self.buffer[..NUMBER_LEN], number);
        }
        if self.jitter.is_some() {
            let time = self.elapsed_nanos().to_be_bytes();
            self.buffer[NUMBER_LEN..NUMBER_LEN + TIME_LEN].copy_from_slice(&time);
        }
    }

    /// Returns the time since the start of the loop.
    fn elapsed_nanos(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Records the time of a datagram that arrived in the buffer.
    fn record_jitter(&mut self, len: usize) {
        let now = self.elapsed_nanos();
        if let Some(jitter) = self
            .jitter
            .as_mut()
            .filter(|_| len >= NUMBER_LEN + TIME_LEN)
        {
            let mut sent = [0; TIME_LEN];
            sent.copy_from_slice(&self.buffer[NUMBER_LEN..NUMBER_LEN + TIME_LEN]);
            jitter.add(u64::from_be_bytes(sent), now);
        }
    }

    /// Receives a message into the buffer, counts it and checks it. A datagram that arrived before
    /// is [`Received::Nothing`].
    fn receive(&mut self, until: Option<Instant>) -> Result<ReceivedMessage> {
        let step = |socket: &mut MessageSocket, message: &mut [u8]| {
            let got = socket.receive(message)?;
            Ok((got != ReceivedMessage::Nothing).then_some(got))
        };
        let got = self.wait(until, step)?.unwrap_or(ReceivedMessage::Nothing);
        match got {
            ReceivedMessage::Message(len) if self.is_duplicate(len) => {
                self.duplicates += 1;
                return Ok(ReceivedMessage::Nothing);
            }
            ReceivedMessage::Message(len) => self.count_arrival(len)?,
            ReceivedMessage::Part => self.waiter.reset(),
            ReceivedMessage::Nothing | ReceivedMessage::End => {}
        }
        Ok(got)
    }

    /// Records the number of a datagram of `len` bytes. Returns `true` if it arrived before.
    fn is_duplicate(&mut self, len: usize) -> bool {
        let Some(arrivals) = &mut self.arrivals else {
            return false;
        };
        len >= NUMBER_LEN && !arrivals.record(payload::number(&self.buffer))
    }

    /// Waits briefly for the control connection, after the peer closed the data connection.
    fn wait_for_peer(&mut self) -> Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        self.check_liveness()
    }

    /// Counts and checks a message that arrived.
    fn count_arrival(&mut self, len: usize) -> Result<()> {
        self.waiter.reset();
        if self.params.verify {
            let number = if self.socket.kind().is_datagram() && self.params.size >= 8 {
                payload::number(&self.buffer)
            } else {
                self.received.msgs
            };
            let header = self.arrivals.as_ref().map_or(0, |_| NUMBER_LEN);
            let message = &self.buffer[..len];
            self.params.payload.check(message, number, header)?;
            if len != self.params.size {
                return Err(Error::test(format!(
                    "received a message of {len} bytes instead of {} bytes",
                    self.params.size
                )));
            }
            self.verified += len as u64;
        } else if self.params.access {
            payload::access(&self.buffer[..len]);
        }
        if self.jitter.is_some() {
            self.record_jitter(len);
        }
        self.received.msgs += 1;
        self.received.bytes += len as u64;
        if let Some(counters) = &self.counters {
            counters.add_received(1, len as u64);
        }
        Ok(())
    }

    /// Notifies the peer that this end has finished, and waits until the peer has finished too.
    fn finish_both(&mut self) -> Result<()> {
        self.peer.finish(self.sent.msgs)?;
        self.socket.shutdown_send();
        self.waiter.reset();
        while self.peer.finished().is_none() {
            self.wait_for_peer()?;
        }
        Ok(())
    }
}

/// A call on a socket as the source of a wait loop. The call itself blocks if the socket does.
struct SocketSource<'a, P, F> {
    step: F,
    peer: &'a P,
    params: &'a LoopParams,
    kind: SocketKind,
}

impl<P: Peer, T, F: FnMut() -> Result<Option<T>>> PollSource for SocketSource<'_, P, F> {
    type Event = T;

    #[inline]
    fn poll(&mut self) -> Result<Option<T>> {
        (self.step)()
    }

    fn block(&mut self, _: Duration) -> Result<Option<T>> {
        (self.step)()
    }

    fn check(&mut self, idle: Range<Instant>) -> Result<()> {
        if let Some(failure) = self.peer.failure() {
            return Err(failure);
        }
        // The heartbeats of a peer show that it still receives what this end has sent.
        let timeout = self.params.timeout;
        let no_heartbeat = || self.peer.silence().is_none_or(|s| s >= timeout);
        if self.params.end_mode == EndMode::Announced
            && idle.end - idle.start >= timeout
            && no_heartbeat()
        {
            return Err(Error::test(format!(
                "no data was transferred over {} for {}",
                self.kind.name(),
                show_time(timeout)
            ))
            .with_help("check that the peer is running, or set --timeout (-to) higher"));
        }
        Ok(())
    }

    fn is_finished(&self) -> bool {
        self.peer.finished().is_some()
    }
}
