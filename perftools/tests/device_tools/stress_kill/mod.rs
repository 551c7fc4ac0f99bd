//! `rperf` and `ribping` when either side is killed or stopped, the link fails, many clients come,
//! the clock jumps, or memory, descriptors and disk run out.
//!
//! Every run ends with a clear error and the right exit status, the server goes on serving, and
//! nothing is left behind. `ci/stress kill` runs more of it.

mod clock;
mod limits;
mod links;
mod load;
mod reflector;
mod signals;

use std::time::Duration;

use test_support::leak_check::{ObjectCounts, objects_of};
use test_support::process::wait_until;
use test_support::random::Random;

use crate::common::Finished;

/// Longest time of a run of a client, including the time limits of its steps.
const CLIENT_LIMIT: Duration = Duration::from_secs(90);

/// Returns a number from the environment.
fn setting(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Creates the generator of a test and prints its seed.
fn random() -> Random {
    let seed = setting("STRESS_SEED", 1);
    println!("seed {seed}");
    Random::new(seed as u64 + 1)
}

/// Returns an element of a list.
fn pick<'a>(random: &mut Random, list: &[&'a str]) -> &'a str {
    list[random.below(list.len())]
}

/// Returns a time below `limit`.
fn random_time(random: &mut Random, limit: Duration) -> Duration {
    limit * u32::try_from(random.below(1000)).unwrap_or(0) / 1000
}

/// Checks that a client ended on its own, with status 0 or with status 1 and an error.
fn assert_clean_end(line: &str, output: &Finished) {
    let text = &output.stderr;
    assert!(!text.contains("panicked"), "{line}: {output}");
    match output.code() {
        Some(0) => {}
        Some(1) => assert!(
            text.contains("rperf: ") || text.contains("ribping: "),
            "{line}: {output}"
        ),
        _ => panic!("{line}: {output}"),
    }
}

/// Waits until a device has as many objects as before.
fn assert_objects_released(device: &str, before: &ObjectCounts) {
    let released = wait_until(Duration::from_secs(30), || objects_of(device) == *before);
    assert!(
        released,
        "{device}: before {before:?}, after {:?}",
        objects_of(device)
    );
}
