//! Faults of adapters of `nic-model` under an engine with threads.

mod common;

use std::time::Duration;

use common::{SOON, bytes, connect, filled, imm, pattern, wait_ready, wait_until};
use nic_model::{DeviceFault, Options};
use rdma_transfer::{Engine, EngineOptions, Span};

const LEN: usize = 1 << 16;

#[test]
fn transfers_continue_after_each_fault_of_an_adapter() {
    nic_model::start(Options::new().adapters(2)).expect("start of the model");
    let options = EngineOptions::new()
        .stripe(4096)
        .timeout(14)
        .retry_cnt(2)
        .stall(Duration::from_secs(1))
        .max_backoff(Duration::from_millis(100));
    let names = ["mlx5_0", "mlx5_1"];
    let [a, b] = [(); 2].map(|()| Engine::open(&names, options).expect("engine"));
    let (peer, back) = connect(&a, &b);
    let source = filled(&a, LEN, 1);
    let target = b.alloc(LEN).expect("region");
    wait_ready(&peer);
    let all = [Span::new(0, 0, LEN)];
    let write = |value| {
        peer.write(&source, &target.remote(), &all, imm(value))
            .expect("write")
            .wait(SOON)
            .expect("written");
        b.imm_counter(value).wait(1, SOON).expect("arrived");
    };
    for (value, fault) in [
        (0, DeviceFault::LinkDown),
        (1, DeviceFault::Stuck),
        (2, DeviceFault::Fatal),
    ] {
        nic_model::fail(0, fault);
        target.write(0, &vec![0; LEN]).expect("in range");
        write(value);
        assert_eq!(bytes(&target), pattern(LEN, 1), "{fault:?}");
        nic_model::repair(0);
        wait_ready(&peer);
    }
    // The adapter sends no event anymore for the completion queue.
    nic_model::fail(0, DeviceFault::LostEvent);
    let lost = || {
        write(3);
        let failure = peer.paths()[0].last_failure.clone();
        failure.is_some_and(|failure| failure.contains("events were lost"))
            || back.paths()[0]
                .last_failure
                .clone()
                .is_some_and(|failure| failure.contains("events"))
    };
    wait_until("the path is replaced", lost);
    wait_ready(&peer);
    write(4);
}
