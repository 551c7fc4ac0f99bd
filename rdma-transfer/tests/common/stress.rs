//! Random transfers between two engines without threads, under random faults. Every byte is
//! checked, also those that must not change.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rdma_transfer::{Engine, ErrorKind, Peer, Region, Span, Transfer, TransferOptions};

use crate::common::{bytes, connect};

/// Numbers from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from 0 to `limit` - 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).expect("less than the limit")
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes());
        words.take(len).collect()
    }
}

/// Devices with faults, and their time.
pub(crate) trait World {
    /// Runs the devices for a moment and returns the time.
    fn step(&mut self) -> Instant;
    /// Orders a random fault.
    fn fault(&mut self, random: &mut Random);
}

/// Number of transfers in flight.
const SLOTS: usize = 12;
/// Length of the memory of each, in bytes.
const LEN: usize = 4096;

struct Slot {
    source: Region,
    target: Region,
    /// The bytes of the target while no transfer uses it.
    expected: Vec<u8>,
    busy: Option<Busy>,
}

struct Busy {
    transfer: Transfer,
    start: usize,
    sent: Vec<u8>,
    is_read: bool,
    imm: Option<u32>,
    /// The receiver has counted it, and uses the memory for something else.
    has_arrived: bool,
    began: Instant,
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) transfers: usize,
    pub(crate) deadlines: usize,
    pub(crate) released: usize,
    pub(crate) bytes: usize,
    pub(crate) counted: usize,
    /// Time from each fault until the transfers ended that were in flight then.
    pub(crate) recoveries: Vec<Duration>,
    /// Longest transfer.
    pub(crate) longest: Duration,
    pub(crate) path_failures: u64,
}

pub(crate) struct Stress<'a, W> {
    world: &'a mut W,
    a: &'a Engine,
    b: &'a Engine,
    b_of_a: Peer,
    a_of_b: Peer,
    random: Random,
    slots: Vec<Slot>,
    now: Instant,
    next_imm: u32,
    /// Immediates of successful transfers that were not counted yet.
    uncounted: VecDeque<(u32, Instant)>,
    /// Those of transfers that passed their deadline: counted once or never.
    doubtful: Vec<u32>,
    /// The faults and the transfers that were in flight then, by slot and start.
    open: Vec<(Instant, Vec<(usize, Instant)>)>,
    outcome: Outcome,
}

/// Time in which a transfer must end after the last fault of its adapters.
const LIMIT: Duration = Duration::from_secs(5);

impl<'a, W: World> Stress<'a, W> {
    pub(crate) fn new(world: &'a mut W, a: &'a Engine, b: &'a Engine, seed: u64) -> Self {
        let (b_of_a, a_of_b) = connect(a, b);
        let slot = |_| Slot {
            source: a.alloc(LEN).expect("region"),
            target: b.alloc(LEN).expect("region"),
            expected: vec![0; LEN],
            busy: None,
        };
        let slots = (0..SLOTS).map(slot).collect();
        let now = world.step();
        Self {
            world,
            a,
            b,
            b_of_a,
            a_of_b,
            random: Random(seed),
            slots,
            now,
            next_imm: 0,
            uncounted: VecDeque::new(),
            doubtful: Vec::new(),
            open: Vec::new(),
            outcome: Outcome::default(),
        }
    }

    /// Runs until this number of faults have happened and all transfers have ended.
    pub(crate) fn run(mut self, faults: usize, steps_between: usize) -> Outcome {
        let mut left = faults;
        let mut wait = self.random.below(steps_between);
        while left > 0 {
            if wait == 0 {
                self.fault();
                left -= 1;
                wait = self.random.below(2 * steps_between);
            }
            wait = wait.saturating_sub(1);
            self.step(true);
        }
        // All transfers end, and the paths are ready again.
        let end = self.now + LIMIT;
        while self.slots.iter().any(|slot| slot.busy.is_some())
            || !self.uncounted.is_empty()
            || !self.is_ready()
        {
            assert!(
                self.now < end,
                "not recovered: {:?} {:?}",
                self.b_of_a,
                self.a_of_b
            );
            self.step(false);
        }
        for index in 0..SLOTS {
            self.check_unchanged(index);
        }
        for imm in 0..self.next_imm {
            let count = self.b.imm_counter(imm).count();
            let limit = u64::from(self.doubtful.contains(&imm));
            assert!(
                count <= limit,
                "the immediate {imm} was counted {count} times more"
            );
        }
        let paths = [self.b_of_a.paths(), self.a_of_b.paths()].concat();
        self.outcome.path_failures = paths.iter().map(|path| path.failures).sum();
        self.outcome
    }

    fn is_ready(&self) -> bool {
        let paths = [self.b_of_a.paths(), self.a_of_b.paths()].concat();
        !paths.is_empty() && paths.iter().all(|path| path.is_ready)
    }

    fn fault(&mut self) {
        self.world.fault(&mut self.random);
        let busy = self.slots.iter().enumerate();
        let busy = busy.filter_map(|(index, slot)| Some((index, slot.busy.as_ref()?.began)));
        self.open.push((self.now, busy.collect()));
    }

    fn step(&mut self, begins: bool) {
        self.now = self.world.step();
        self.a.poll(self.now);
        self.b.poll(self.now);
        assert!(self.b_of_a.is_connected() && self.a_of_b.is_connected());
        for index in 0..SLOTS {
            self.arrive(index);
            match &self.slots[index].busy {
                Some(busy) if busy.transfer.has_ended() => self.end(index),
                Some(busy) => {
                    let limit = busy.began + LIMIT;
                    assert!(self.now < limit, "{:?} {:?}", busy.transfer, self.b_of_a);
                }
                None if begins && self.random.below(64) == 0 => self.begin(index),
                None => {}
            }
        }
        self.count();
    }

    /// Checks that no late write has changed the target.
    fn check_unchanged(&self, index: usize) {
        let slot = &self.slots[index];
        assert!(
            bytes(&slot.target) == slot.expected,
            "memory of slot {index} was written after its transfer had ended"
        );
    }

    fn begin(&mut self, index: usize) {
        self.check_unchanged(index);
        let random = &mut self.random;
        if random.below(16) == 0 {
            // Fails while no device works.
            if let Ok(target) = self.b.alloc(LEN) {
                self.outcome.released += 1;
                let old = std::mem::replace(&mut self.slots[index].target, target);
                drop(old.release());
                self.slots[index].expected = vec![0; LEN];
            }
        }
        let slot = &mut self.slots[index];
        let start = random.below(LEN - 1);
        let len = 1 + random.below(LEN - start);
        let sent = random.bytes(len);
        slot.source.write(start, &sent).expect("in range");
        let span = [Span::new(start, start as u64, len)];
        let mut options = TransferOptions::new();
        if random.below(8) == 0 {
            let deadline = Duration::from_micros(random.next() % 20_000);
            options = options.deadline(deadline);
        }
        if random.below(4) == 0 {
            options = options.device(random.below(4));
        }
        let is_read = random.below(3) == 0;
        let mut imm = None;
        let transfer = if is_read {
            let remote = slot.source.remote();
            self.a_of_b.read(&slot.target, &remote, &span, options)
        } else {
            if random.below(4) > 0 {
                imm = Some(self.next_imm);
                options = options.imm(self.next_imm);
                self.next_imm += 1;
            }
            let remote = slot.target.remote();
            self.b_of_a.write(&slot.source, &remote, &span, options)
        };
        slot.busy = Some(Busy {
            transfer: transfer.expect("valid"),
            start,
            sent,
            is_read,
            imm,
            has_arrived: false,
            began: self.now,
        });
    }

    /// Takes the immediate of a slot. The receiver then uses the memory for something else, before
    /// the sender knows that the transfer has ended.
    fn arrive(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let Some(busy) = slot.busy.as_mut().filter(|busy| !busy.has_arrived) else {
            return;
        };
        let Some(imm) = busy.imm else { return };
        if self.b.imm_counter(imm).wait(1, Duration::ZERO).is_ok() {
            busy.has_arrived = true;
            self.outcome.counted += 1;
            let range = busy.start..busy.start + busy.sent.len();
            slot.expected[range].copy_from_slice(&busy.sent);
            assert!(
                bytes(&slot.target) == slot.expected,
                "slot {index} was counted too early"
            );
            slot.expected = self.random.bytes(LEN);
            slot.target.write(0, &slot.expected).expect("in range");
        }
    }

    fn end(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let busy = slot.busy.take().expect("busy");
        let took = self.now - busy.began;
        self.outcome.longest = self.outcome.longest.max(took);
        self.outcome.transfers += 1;
        let now = bytes(&slot.target);
        let range = busy.start..busy.start + busy.sent.len();
        match busy.transfer.wait(Duration::ZERO) {
            _ if busy.has_arrived => {
                self.outcome.bytes += busy.sent.len();
                assert!(
                    now == slot.expected,
                    "memory of slot {index} was written after it was counted"
                );
            }
            Ok(()) => {
                self.outcome.bytes += busy.sent.len();
                slot.expected[range.clone()].copy_from_slice(&busy.sent);
                let wrong: Vec<usize> = (0..LEN)
                    .filter(|&at| now[at] != slot.expected[at])
                    .collect();
                assert!(
                    wrong.is_empty(),
                    "slot {index}, {range:?}, read: {}: {} wrong bytes from {} to {}",
                    busy.is_read,
                    wrong.len(),
                    wrong[0],
                    wrong[wrong.len() - 1]
                );
                self.uncounted.extend(busy.imm.map(|imm| (imm, self.now)));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
                self.outcome.deadlines += 1;
                self.doubtful.extend(busy.imm);
                assert!(now[..range.start] == slot.expected[..range.start]);
                assert!(now[range.end..] == slot.expected[range.end..]);
                // The program uses the memory for something else at once.
                slot.expected = self.random.bytes(LEN);
                slot.target.write(0, &slot.expected).expect("in range");
            }
        }
        let ended = (index, busy.began);
        let Self {
            open, outcome, now, ..
        } = self;
        open.retain_mut(|(fault, waiting)| {
            waiting.retain(|one| *one != ended);
            if waiting.is_empty() {
                outcome.recoveries.push(*now - *fault);
            }
            !waiting.is_empty()
        });
    }

    /// Takes the immediates of successful transfers, which are counted once.
    fn count(&mut self) {
        let (b, now) = (self.b, self.now);
        let before = self.uncounted.len();
        self.uncounted.retain(|&(imm, since)| {
            let counter = b.imm_counter(imm);
            let is_counted = counter.wait(1, Duration::ZERO).is_ok();
            assert!(is_counted || now < since + LIMIT, "immediate {imm} is lost");
            !is_counted
        });
        self.outcome.counted += before - self.uncounted.len();
    }
}
