//! Loops that check memory: polling for marks, and atomics whose results are verified.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use ibverbs::wr;
use measure::engine::wait_loop::{PollSource, WaitLoop};
use measure::spec::modes::Wait;
use measure::spec::plan::Verb;
use measure::stats::latency::LatencyRecorder;

use super::{Completions, Run, record};

/// Bytes that the ends of `rc_rdma_write_poll_lat` write: the client's, then the server's.
const MARKS: [u8; 2] = [0x55, 0xaa];
/// First value of qperf's compare-and-swaps.
const MAGIC: u64 = 0x0123_4567_89ab_cdef;

impl Run<'_> {
    /// Writes this end's mark to the first and the last byte of its message.
    pub(super) fn write_mark(&mut self, first: bool) -> Result<()> {
        let mark = MARKS[usize::from(!first)];
        let last = usize::try_from(self.size).unwrap_or(1).saturating_sub(1);
        let region = &self.io.end.region;
        region.write(0, &[mark])?;
        Ok(region.write(last, &[mark])?)
    }

    pub(super) fn poll_for_marks(
        &mut self,
        first: bool,
        latencies: &mut Option<LatencyRecorder>,
    ) -> Result<()> {
        let peer_mark = MARKS[usize::from(first)];
        let last = usize::try_from(self.size).unwrap_or(1).saturating_sub(1);
        let mut before = Instant::now();
        let mut sends = first;
        // Nothing wakes an end whose memory is written, so it polls in every mode.
        let mut waiter = WaitLoop::new(Wait::Poll, true).yielding();
        while !self.is_over() {
            if sends {
                self.post(Verb::Write)?;
                self.io.poll_cq()?;
            }
            let mut marks = Marks {
                io: &mut self.io,
                expected: peer_mark,
                last,
            };
            if waiter.wait(&mut marks, self.deadline)?.is_none() {
                return Ok(());
            }
            self.io.received += 1;
            if let Some(latencies) = latencies.as_mut() {
                before = record(latencies, before, 2);
            }
            self.write_mark(first)?;
            sends = true;
        }
        Ok(())
    }

    /// Posts atomics and checks that their results are consecutive.
    pub(super) fn verify(&mut self, verb: Verb) -> Result<()> {
        let slots = (self.io.end.region.len() as u64 / 8).min(u64::from(self.io.end.depth));
        let word = self
            .io
            .end
            .remote
            .slice(0..8)
            .ok_or_else(|| Error::limit("the peer's memory is smaller than 8 bytes"))?;
        let (mut posted, mut checked) = (0_u64, 0_u64);
        while !self.is_over() {
            while posted - checked < slots {
                let at = usize::try_from(posted % slots).unwrap_or(0) * 8;
                let slot = self.io.end.held.slice(at..at + 8);
                let slot = slot.ok_or_else(|| Error::limit("the memory is too small"))?;
                let qp = self.io.end.connection.qp_mut();
                let n = posted;
                match verb {
                    Verb::CompareSwap => {
                        qp.post_send(wr::compare_swap(
                            slot,
                            word,
                            expected_value(verb, n),
                            MAGIC.wrapping_add(n),
                        ))?;
                    }
                    _ => qp.post_send(wr::fetch_add(slot, word, 1))?,
                }
                posted += 1;
            }
            let (sends, _) = self.wait()?;
            for _ in 0..sends {
                let at = usize::try_from(checked % slots).unwrap_or(0) * 8;
                let seen = self.io.end.region.load(at, Ordering::Relaxed)?;
                if seen != expected_value(verb, checked) {
                    return Err(Error::test(format!(
                        "atomic operation {checked} returned {seen:#x}, expected {:#x}",
                        expected_value(verb, checked)
                    )));
                }
                checked += 1;
                self.verified += 8;
            }
        }
        Ok(())
    }
}

/// The peer's marks in this end's memory as the source of a wait loop.
struct Marks<'a, 'b> {
    io: &'a mut Completions<'b>,
    expected: u8,
    /// Offset of the last byte of the message.
    last: usize,
}

impl PollSource for Marks<'_, '_> {
    type Event = ();

    fn poll(&mut self) -> Result<Option<()>> {
        let (mut head, mut tail) = ([0], [0]);
        let region = &self.io.end.region;
        region
            .read(0, &mut head)
            .and_then(|()| region.read(self.last, &mut tail))?;
        Ok((head == [self.expected] && tail == [self.expected]).then_some(()))
    }

    fn block(&mut self, _: Duration) -> Result<Option<()>> {
        self.poll()
    }

    fn check(&mut self, idle: Range<Instant>) -> Result<()> {
        self.io.poll_cq()?;
        self.io.check_liveness(idle.end)
    }

    fn is_finished(&self) -> bool {
        false
    }
}

/// Returns the value that the atomic operation `n` must return.
fn expected_value(verb: Verb, n: u64) -> u64 {
    match verb {
        Verb::CompareSwap if n > 0 => MAGIC.wrapping_add(n - 1),
        Verb::CompareSwap => 0,
        _ => n,
    }
}
