//! Loops over memory: marks that are looked for, and atomics whose results are checked.

use std::sync::atomic::Ordering;
use std::time::Instant;

use ibverbs::wr;

use super::{POLLS_PER_CLOCK, Run, record};
use crate::common::error::{Error, Result};
use crate::rperf::spec::plan::Verb;
use crate::rperf::stats::latency::LatencyRecorder;

/// What the ends of `rc_rdma_write_poll_lat` write, the client first.
const MARKS: [u8; 2] = [0x55, 0xaa];
/// What qperf's compare-and-swaps count from.
const MAGIC: u64 = 0x0123_4567_89ab_cdef;

impl Run<'_> {
    /// Writes this end's mark to both ends of its memory.
    pub(super) fn mark(&mut self, first: bool) -> Result<()> {
        let mark = MARKS[usize::from(!first)];
        let last = usize::try_from(self.size).unwrap_or(1).saturating_sub(1);
        let region = &self.end.region;
        region.write(0, &[mark])?;
        Ok(region.write(last, &[mark])?)
    }

    pub(super) fn look_for_marks(
        &mut self,
        first: bool,
        latencies: &mut Option<LatencyRecorder>,
    ) -> Result<()> {
        let theirs = MARKS[usize::from(first)];
        let last = usize::try_from(self.size).unwrap_or(1).saturating_sub(1);
        let mut before = Instant::now();
        let mut sends = first;
        let mut spins = 0_u32;
        while !self.is_over() {
            if sends {
                self.post(Verb::Write)?;
                self.poll()?;
            }
            let (mut head, mut tail) = ([0], [0]);
            loop {
                let region = &self.end.region;
                region
                    .read(0, &mut head)
                    .and_then(|()| region.read(last, &mut tail))?;
                if head == [theirs] && tail == [theirs] {
                    break;
                }
                spins += 1;
                std::thread::yield_now();
                if spins % POLLS_PER_CLOCK == 0 {
                    if self.is_over() {
                        return Ok(());
                    }
                    self.poll()?;
                    self.check_liveness()?;
                }
            }
            self.received += 1;
            if let Some(latencies) = latencies.as_mut() {
                before = record(latencies, before, 2);
            }
            self.mark(first)?;
            sends = true;
        }
        Ok(())
    }

    /// Atomics whose results are known, one after the other.
    pub(super) fn verify(&mut self, verb: Verb) -> Result<()> {
        let fetch_slots = (self.end.region.len() as u64 / 8).min(u64::from(self.end.depth));
        let word = self
            .end
            .remote
            .slice(0, 8)
            .ok_or_else(|| Error::limit("the peer's memory has no 8 bytes"))?;
        let (mut posted_so_far, mut checked) = (0_u64, 0_u64);
        while !self.is_over() {
            while posted_so_far - checked < fetch_slots {
                let at = usize::try_from(posted_so_far % fetch_slots).unwrap_or(0) * 8;
                let place = self.end.held.slice(at..at + 8);
                let place = place.ok_or_else(|| Error::limit("the memory is too small"))?;
                let qp = self.end.connection.qp_mut();
                let n = posted_so_far;
                match verb {
                    Verb::CompareSwap => {
                        qp.post_send(wr::compare_swap(
                            place,
                            word,
                            found(verb, n),
                            MAGIC.wrapping_add(n),
                        ))?;
                    }
                    _ => qp.post_send(wr::fetch_add(place, word, 1))?,
                }
                posted_so_far += 1;
            }
            let (sends, _) = self.wait()?;
            for _ in 0..sends {
                let at = usize::try_from(checked % fetch_slots).unwrap_or(0) * 8;
                let seen = self.end.region.load(at, Ordering::Relaxed)?;
                if seen != found(verb, checked) {
                    return Err(Error::test(format!(
                        "atomic {checked} found {seen:#x}, not {:#x}",
                        found(verb, checked)
                    )));
                }
                checked += 1;
                self.verified += 8;
            }
        }
        Ok(())
    }
}

/// What atomic number `n` finds.
fn found(verb: Verb, n: u64) -> u64 {
    match verb {
        Verb::CompareSwap if n > 0 => MAGIC.wrapping_add(n - 1),
        Verb::CompareSwap => 0,
        _ => n,
    }
}
