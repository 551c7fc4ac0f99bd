//! Random sequences of messages of two peers, without a fuzzer. The memory of the process is
//! limited. `SEQUENCES` is the number of inputs of each target.

use test_support::random::Random;
use test_support::usage::{Usage, peak_kib, reset_peak};

/// Maximum growth of the memory of the process during an input, in KiB.
const MAX_GROWTH_KIB: u64 = 64 << 10;

/// A function that panics if an input reveals a fault.
type Target = fn(&[u8]);

#[test]
fn random_sequences_keep_the_limits() {
    let count: u64 = std::env::var("SEQUENCES").map_or(60, |text| text.parse().expect("a number"));
    let targets: [(&str, Target); 2] = [
        ("transfer_sequence", fuzz_targets::transfer_sequence),
        ("session_sequence", fuzz_targets::session_sequence),
    ];
    let pid = std::process::id();
    for (name, target) in targets {
        // What is kept for the whole process is not counted.
        target(&[0; 64]);
        let mut peak = 0;
        for seed in 1..=count {
            let mut random = Random::new(seed);
            let len = random.below(300);
            // Without this bit, no action of transfers changes a message.
            let mask = if seed % 2 == 0 { 0xef } else { 0xff };
            let byte = |random: &mut Random| random.next_u64().to_le_bytes()[3] & mask;
            let input: Vec<u8> = (0..len).map(|_| byte(&mut random)).collect();
            let before = Usage::of(pid).resident_kib;
            reset_peak(pid);
            target(&input);
            peak = peak.max(peak_kib(pid).saturating_sub(before));
            assert!(peak < MAX_GROWTH_KIB, "{name}, seed {seed}: {peak} KiB");
        }
        println!("{name}: {count} inputs, at most {peak} KiB each");
    }
}
