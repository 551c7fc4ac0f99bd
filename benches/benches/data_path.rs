//! Measures the time of each case. It includes the step of the peer, which is the same for all
//! variants of a step.

#![allow(missing_docs, reason = "criterion_group! expands to a public function")]

use std::hint::black_box;

use benches::CASES;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

fn data_path(criterion: &mut Criterion) {
    for case in CASES {
        let mut group = criterion.benchmark_group(format!("{} {:?}", case.step, case.verbs));
        group.throughput(Throughput::Elements(case.requests as u64));
        let mut rig = case.rig().expect("a fake device");
        group.bench_function(case.variant, |bencher| {
            bencher.iter_custom(|times| {
                let start = std::time::Instant::now();
                case.run(
                    black_box(&mut rig),
                    usize::try_from(times).unwrap_or(usize::MAX),
                )
                .expect("all requests complete");
                start.elapsed()
            });
        });
        group.finish();
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(std::time::Duration::from_millis(200))
        .measurement_time(std::time::Duration::from_millis(600));
    targets = data_path
}
criterion_main!(benches);
