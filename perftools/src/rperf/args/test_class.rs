//! Kinds of tests that an option acts on.

use measure::spec::plan::{Pattern, Plan, Service};
use measure::spec::test::Test;

/// A kind of tests.
pub(super) struct TestClass {
    pub(super) contains: fn(Test) -> bool,
    /// Description of the tests, such as "tests over sockets".
    pub(super) name: &'static str,
}

pub(super) fn plan(test: Test, condition: fn(Plan) -> bool) -> bool {
    test.plan().is_some_and(condition)
}

fn is_bandwidth(plan: Plan) -> bool {
    !plan.is_latency()
}

pub(super) const DATA: &TestClass = &TestClass {
    contains: Test::moves_data,
    name: "tests that transfer data",
};
pub(super) const PAYLOAD: &TestClass = &TestClass {
    contains: |test| test.moves_data() && !plan(test, |plan| plan.verb.is_atomic()),
    name: "tests other than those of atomics",
};
pub(super) const BANDWIDTH: &TestClass = &TestClass {
    contains: |test| test.moves_data() && !test.is_latency(),
    name: "bandwidth tests",
};
pub(super) const BYTES: &TestClass = &TestClass {
    contains: |test| (BANDWIDTH.contains)(test) && (PAYLOAD.contains)(test),
    name: "bandwidth tests other than those of atomics",
};
pub(super) const LATENCY: &TestClass = &TestClass {
    contains: Test::is_latency,
    name: "latency tests",
};
pub(super) const EVENTS: &TestClass = &TestClass {
    contains: |test| test.moves_data() && !plan(test, |plan| plan.pattern == Pattern::Polled),
    name: "tests that wait for completions; a write to memory causes no event",
};
pub(super) const ONE_WAY: &TestClass = &TestClass {
    contains: Test::is_one_way,
    name: "tests with one sender",
};
pub(super) const RDMA: &TestClass = &TestClass {
    contains: |test| test.plan().is_some(),
    name: "tests over RDMA devices",
};
pub(super) const RDMA_BANDWIDTH: &TestClass = &TestClass {
    contains: |test| plan(test, is_bandwidth),
    name: "bandwidth tests over RDMA devices",
};
pub(super) const CM: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service.uses_cm()),
    name: "tests over RC and UD",
};
pub(super) const CONNECTED: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service.has_path()),
    name: "tests over RC, UC, XRC and DC",
};
pub(super) const DC: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service == Service::Dc),
    name: "tests over DC",
};
pub(super) const RELIABLE: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            plan.service.has_path() && plan.service.is_reliable()
        })
    },
    name: "tests over RC, XRC and DC",
};
pub(super) const HEADERS: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.service != Service::Srd),
    name: "tests over RDMA devices, except SRD, whose packets have no such fields",
};
pub(super) const FLOOD: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            !plan.service.is_reliable() && is_bandwidth(plan)
        })
    },
    name: "bandwidth tests over UC and UD",
};
pub(super) const MULTICAST: &TestClass = &TestClass {
    contains: |test| test == Test::UdBw,
    name: "ud_bw",
};
pub(super) const IMMEDIATE: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            plan.verb.takes_receives()
                && (plan.verb.is_one_sided() || !plan.service.numbers_messages())
        })
    },
    name: "tests of RDMA writes, except those that poll memory, and of sends over RC, XRC and DC",
};
pub(super) const RECEIVES: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.verb.takes_receives()),
    name: "tests of sends and of RDMA writes with immediate data",
};
pub(super) const OWN_RECEIVES: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            let has_choice = !plan.service.always_shares_receives() && plan.service != Service::Srd;
            plan.verb.takes_receives() && has_choice
        })
    },
    name: "tests of sends and of RDMA writes with immediate data; XRC and DC always have a shared queue, and SRD has none",
};
pub(super) const INLINE: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| !plan.verb.fetches()),
    name: "tests of sends and of RDMA writes",
};
pub(super) const FETCHES: &TestClass = &TestClass {
    contains: |test| plan(test, |plan| plan.verb.fetches() && plan.service.has_path()),
    name: "tests of RDMA reads and atomics, except SRD",
};
pub(super) const MODERATED: &TestClass = &TestClass {
    contains: |test| {
        plan(test, |plan| {
            !(plan.is_latency() && plan.verb.fetches()) && plan.service.is_ordered()
        }) && !test.verifies()
    },
    name: "tests that need no completion of each request",
};
pub(super) const SOCKETS: &TestClass = &TestClass {
    contains: |test| test.socket().is_some(),
    name: "tests over sockets",
};
pub(super) const STREAMS: &TestClass = &TestClass {
    contains: |test| test.socket().is_some() && !test.is_latency(),
    name: "bandwidth tests over sockets",
};
