//! RC tests over RDMA devices, connected by rdma_cm. qperf supports RoCE in no other way.

mod endpoint;
mod run;

use std::net::{IpAddr, SocketAddr};

pub(super) use endpoint::QperfEndpoint;
pub(super) use run::run;

use base::error::{Error, Result};
use measure::spec::plan::{Pattern, Plan, Service, Verb};
use measure::spec::test::Test;
use measure::spec::{Limit, Spec};

/// Queue depth of a bandwidth test, as in qperf.
const BANDWIDTH_DEPTH: u32 = 1024;
/// Queue depth of tests with one message in flight.
const PING_PONG_DEPTH: u32 = 16;

/// Loop that an end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QperfLoop {
    /// Posts messages, one at a time if `one` is set.
    Source { verb: Verb, one: bool },
    /// Receives messages.
    Sink,
    /// Sends and receives messages.
    Both,
    /// Sends a message and waits for the reply.
    Ping(Verb),
    /// Waits for a message and replies.
    Pong(Verb),
    /// Writes to the peer's memory and polls its own memory for the reply.
    PollMemory { first: bool },
    /// Posts atomics and checks each result.
    Verify(Verb),
    /// Waits for the end of the test, because all operations are one-sided and posted by the peer.
    Idle,
}

/// Returns the loop of an end in a test.
fn loop_kind(test: Test, plan: Plan, client: bool) -> QperfLoop {
    let verb = plan.verb;
    match plan.pattern {
        Pattern::Polled => QperfLoop::PollMemory { first: client },
        Pattern::BothWays => QperfLoop::Both,
        Pattern::PingPong if verb.takes_receives() && client => QperfLoop::Ping(verb),
        Pattern::PingPong if verb.takes_receives() => QperfLoop::Pong(verb),
        Pattern::OneWay if verb.takes_receives() && !client => QperfLoop::Sink,
        _ if !client => QperfLoop::Idle,
        _ if test.verifies() => QperfLoop::Verify(verb),
        pattern => QperfLoop::Source {
            verb,
            one: pattern == Pattern::PingPong,
        },
    }
}

/// Returns the plan of a test.
pub(super) fn plan(spec: &Spec, uses_cm: bool) -> Result<Plan> {
    let plan = spec
        .test
        .plan()
        .ok_or_else(|| Error::limit("the test uses no RDMA device"))?;
    if plan.service != Service::Rc {
        return Err(Error::limit(format!(
            "qperf connects {} by LIDs only, which RoCE and iWARP ports do not have",
            plan.service
        ))
        .with_help("use rperf on both ends"));
    }
    if !uses_cm {
        return Err(Error::limit(
            "without rdma_cm, qperf connects by LIDs only, which RoCE and iWARP ports do not have",
        )
        .with_help("set --use-cm (-cm1)"));
    }
    if matches!(spec.limit, Limit::Messages(_)) && spec.test != Test::RcBw {
        return Err(
            Error::limit("--messages (-n): qperf ends this test by time only")
                .with_help("set --time (-t) instead"),
        );
    }
    Ok(plan)
}

/// Returns the address of the peer with another port. qperf supports rdma_cm over IPv4 only.
fn ipv4(address: SocketAddr, port: u16) -> Result<SocketAddr> {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => Ok(SocketAddr::new(ip, port)),
        ip @ IpAddr::V6(_) => Err(Error::limit(format!(
            "cannot connect to {ip}: qperf uses rdma_cm over IPv4 only"
        ))
        .with_help("specify the host by an IPv4 address")),
    }
}
