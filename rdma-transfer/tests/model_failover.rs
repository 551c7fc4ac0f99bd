//! Transfers over four adapters of `nic-model`, with the unmodified libibverbs and libmlx5, under
//! random faults.
//!
//! `TRANSFER_FAULTS` is the number of faults and `TRANSFER_SEED` the seed. A run with the same
//! values is the same, except for addresses.

mod common;
#[path = "common/stress.rs"]
mod stress;

use std::env;
use std::time::{Duration, Instant};

use common::{bytes, connect, pattern};
use nic_model::{DeviceFault, Drive, Fault, FaultRule, Options};
use rdma_transfer::{Engine, EngineOptions, Span, TransferOptions};
use stress::{Outcome, Random, Stress, World};

const ADAPTERS: [&str; 4] = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"];

/// Steps of the adapters for each step of the engines, in microseconds of model time.
const STEPS: usize = 20;

/// The adapters, whose time passes with their steps.
struct Model {
    start: Instant,
    /// The adapters that have failed, and the time of their repair.
    failed: Vec<(usize, Instant)>,
    /// Number of faults of each kind.
    counts: [usize; 8],
}

impl World for Model {
    fn step(&mut self) -> Instant {
        for _ in 0..STEPS {
            nic_model::step();
        }
        let now = self.start + Duration::from_nanos(nic_model::now());
        self.failed.retain(|&(adapter, until)| {
            if until <= now {
                nic_model::repair(adapter);
            }
            until > now
        });
        now
    }

    fn fault(&mut self, random: &mut Random) {
        let adapter = random.below(ADAPTERS.len());
        let times = 1 + random.next() % 8;
        let delay = random.next() % 30_000_000;
        let kind = random.below(self.counts.len());
        self.counts[kind] += 1;
        let failed = match kind {
            0 => Some(DeviceFault::LinkDown),
            1 => Some(DeviceFault::Stuck),
            2 => Some(DeviceFault::Fatal),
            _ => None,
        };
        if let Some(fault) = failed {
            nic_model::fail(adapter, fault);
            let now = self.start + Duration::from_nanos(nic_model::now());
            self.failed.retain(|(other, _)| *other != adapter);
            self.failed
                .push((adapter, now + Duration::from_nanos(delay)));
            return;
        }
        let rule = match kind {
            3 => return nic_model::fail(adapter, DeviceFault::LostEvent),
            4 => FaultRule::new(Fault::Drop),
            // The request was executed, and this side does not know it.
            5 => FaultRule::new(Fault::Drop).on_responses(),
            // The request arrives after its path was given up.
            6 => FaultRule::new(Fault::Delay(delay)),
            _ => FaultRule::new(Fault::Duplicate),
        };
        nic_model::inject_at(adapter, rule.times(times));
    }
}

fn number(name: &str, default: u64) -> u64 {
    let text = env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

/// Returns the value below which this part of the values is, in percent.
fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    let last = sorted.len().saturating_sub(1);
    sorted
        .get(last * percent / 100)
        .copied()
        .unwrap_or_default()
}

fn report(outcome: &mut Outcome, model: &Model) {
    outcome.recoveries.sort();
    let Outcome { recoveries, .. } = &outcome;
    let [median, most, all] = [50, 99, 100].map(|percent| percentile(recoveries, percent));
    println!(
        "transfers {} ({} passed their deadline), {} bytes, {} immediates counted once, {} regions \
         released",
        outcome.transfers, outcome.deadlines, outcome.bytes, outcome.counted, outcome.released
    );
    println!(
        "faults: link down {}, stuck {}, fatal {}, lost event {}, lost requests {}, lost responses \
         {}, late requests {}, repeated {}; {} failures of paths",
        model.counts[0],
        model.counts[1],
        model.counts[2],
        model.counts[3],
        model.counts[4],
        model.counts[5],
        model.counts[6],
        model.counts[7],
        outcome.path_failures
    );
    println!(
        "recovery in model time, until the transfers ended that a fault found in flight: median \
         {median:?}, 99 % {most:?}, longest {all:?}; longest transfer {:?}",
        outcome.longest
    );
}

/// Opens two engines, whose paths fail after this time without a completion.
fn engines(stall: Duration) -> [Engine; 2] {
    // Acknowledgments are late after a millisecond of model time.
    let options = EngineOptions::new()
        .manual(true)
        .stripe(256)
        .max_send_wr(16)
        .max_recv_wr(64)
        .timeout(8)
        .retry_cnt(2)
        .stall(stall)
        .min_backoff(Duration::from_millis(1))
        .max_backoff(Duration::from_millis(20));
    [(); 2].map(|()| Engine::open(&ADAPTERS, options).expect("engine"))
}

/// Time without a completion after which a path under load has failed.
const STALL: Duration = Duration::from_millis(5);

/// Length of the transfer in which an adapter fails, in bytes.
const LOAD: usize = 251 << 18;

/// Runs one transfer over all adapters. One adapter fails, for longer than the engines take to
/// notice it. Prints and checks, in model time, the longest time without data and the bandwidth
/// from the failure on, compared with the one before.
fn fail_under_load(model: &mut Model, fault: DeviceFault) {
    let [a, b] = engines(STALL);
    let (b_of_a, a_of_b) = connect(&a, &b);
    let mut step = || {
        let now = model.step();
        a.poll(now);
        b.poll(now);
        now
    };
    let is_ready = || {
        let paths = [b_of_a.paths(), a_of_b.paths()].concat();
        paths.len() == 2 * ADAPTERS.len() && paths.iter().all(|path| path.is_ready)
    };
    while !is_ready() {
        step();
    }
    let [source, target] = [&a, &b].map(|engine| engine.alloc(LOAD).expect("region"));
    let sent = pattern(251, 1).repeat(LOAD / 251);
    source.write(0, &sent).expect("in range");
    let all = [Span::new(0, 0, LOAD)];
    let transfer = b_of_a.write(&source, &target.remote(), &all, TransferOptions::new());
    let transfer = transfer.expect("valid");
    // Returns the bandwidth in bytes per second and the longest time without data.
    let mut measure = |time: Duration| {
        let (start, first) = (step(), transfer.bytes_done());
        let (mut now, mut last, mut bytes, mut longest) = (start, start, first, Duration::ZERO);
        while now < start + time {
            now = step();
            longest = longest.max(now - last);
            if transfer.bytes_done() > bytes {
                (last, bytes) = (now, transfer.bytes_done());
            }
        }
        assert!(!transfer.has_ended(), "the transfer is too short");
        let bandwidth = u128::from(bytes - first) * 1_000_000_000 / (now - start).as_nanos();
        (bandwidth, longest)
    };
    let (before, _) = measure(STALL);
    nic_model::fail(1, fault);
    let (after, longest) = measure(2 * STALL);
    nic_model::repair(1);
    let kept = 100 * after / before;
    println!(
        "{fault:?} of one adapter of {}: at most {longest:?} without data, {kept} % of the bandwidth \
         kept",
        ADAPTERS.len()
    );
    assert!(b_of_a.paths()[1].failures > 0);
    assert!(longest < STALL / 10, "{longest:?} without data");
    assert!((70..80).contains(&kept), "{kept} % of the bandwidth");
    while !transfer.has_ended() {
        step();
    }
    transfer.wait(Duration::ZERO).expect("success");
    assert!(bytes(&target) == sent);
}

#[test]
fn no_byte_is_wrong_or_late_on_four_adapters() {
    let (seed, faults) = (number("TRANSFER_SEED", 1), number("TRANSFER_FAULTS", 200));
    println!("seed {seed}, {faults} faults");
    let options = Options::new().drive(Drive::Step).adapters(ADAPTERS.len());
    nic_model::start(options).expect("start of the model");
    let mut model = Model {
        start: Instant::now(),
        failed: Vec::new(),
        counts: [0; 8],
    };
    for fault in [
        DeviceFault::LinkDown,
        DeviceFault::Stuck,
        DeviceFault::Fatal,
    ] {
        fail_under_load(&mut model, fault);
    }
    let faults = usize::try_from(faults).expect("fits");
    let [a, b] = engines(Duration::from_millis(15));
    let mut outcome = Stress::new(&mut model, &a, &b, seed).run(faults, 200);
    report(&mut outcome, &model);
    assert!(outcome.transfers > faults && outcome.path_failures > 0);
}
