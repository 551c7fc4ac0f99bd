//! The resources of an `rperf` server on each device.

use std::time::Duration;

use clap::Parser;
use measure::spec::Bounds;
use measure::spec::test::Test;
use perftools::rperf::args::command_line::Options;
use test_support::process::{memory, wait_until};

use crate::common::{Server, devices, json};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn reservations_cover_the_memory_of_a_test() {
    for device in devices() {
        let server = Server::start();
        // A first test loads the provider.
        let target = format!("{} -i {device}", server.target());
        json(&format!("{target} -n 10 rc_bw"));
        let before = memory(server.id(), "VmRSS");
        let options = "--timeout 60 --msg-size 1 --depth 4096 --threads 8 --qps 4 --messages 50000";
        let records = json(&format!("{target} {options} rc_bw"));
        let used = memory(server.id(), "VmHWM") - before;
        let depth = &records[0]["outcome"]["measured"]["depth"];
        let depth = u32::try_from(depth.as_u64().unwrap()).unwrap();
        let words = std::iter::once("rperf").chain(options.split_whitespace());
        let spec = Options::try_parse_from(words)
            .unwrap()
            .to_spec(Test::RcBw)
            .unwrap();
        let plan = Test::RcBw.plan().unwrap();
        let shape = spec.shape_for_depth(depth, plan, &Bounds::default());
        let reserved = shape.unwrap().footprint().memory;
        println!("{device}: depth {depth}: {used} bytes of {reserved} reserved bytes");
        assert!(used <= reserved, "{device}: {used} of {reserved}");
        assert!(reserved <= used * 16, "{device}: {used} of {reserved}");
        assert!(spec.footprint().memory >= reserved);
        // An idle server returns the memory.
        let kept = || memory(server.id(), "VmRSS").saturating_sub(before);
        let is_returned = wait_until(Duration::from_secs(20), || kept() < used / 32);
        println!("{device}: {} bytes kept", kept());
        assert!(is_returned, "{device}: {} of {used}", kept());
    }
}
