//! RC over an RDMA device, connected by rdma_cm: the only way in which a qperf reaches RoCE.

mod endpoint;
mod run;

use std::net::{IpAddr, SocketAddr};

pub(super) use endpoint::QperfEndpoint;
pub(super) use run::run;

use crate::common::error::{Error, Result};
use crate::rperf::spec::plan::{Pattern, Plan, Service, Verb};
use crate::rperf::spec::test::Test;
use crate::rperf::spec::{Limit, Spec};

/// What a qperf has posted on each queue.
const DEPTH: u32 = 1024;
/// Room of the queues of a ping-pong.
const FEW: u32 = 16;

/// The loop that an end runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoopKind {
    /// Posts, many at a time or one.
    Source { verb: Verb, one: bool },
    /// Receives.
    Sink,
    /// Sends and receives.
    Both,
    /// Sends first and receives, one at a time.
    Ping(Verb),
    /// Answers.
    Pong(Verb),
    /// Writes into the peer's memory, and looks at its own for the answer.
    Look { first: bool },
    /// Atomics, each of whose results is checked.
    Verify(Verb),
    /// Nothing: the peer does it all.
    Idle,
}

/// The part of an end in a test.
fn part(test: Test, plan: Plan, client: bool) -> LoopKind {
    let verb = plan.verb;
    match plan.pattern {
        Pattern::Polled => LoopKind::Look { first: client },
        Pattern::BothWays => LoopKind::Both,
        Pattern::PingPong if verb.takes_receives() && client => LoopKind::Ping(verb),
        Pattern::PingPong if verb.takes_receives() => LoopKind::Pong(verb),
        Pattern::OneWay if verb.takes_receives() && !client => LoopKind::Sink,
        _ if !client => LoopKind::Idle,
        _ if matches!(test, Test::VerRcCompareSwap | Test::VerRcFetchAdd) => LoopKind::Verify(verb),
        pattern => LoopKind::Source {
            verb,
            one: pattern == Pattern::PingPong,
        },
    }
}

/// What a test does, if it can be run with a qperf.
///
/// # Errors
/// Says why it cannot.
pub(super) fn plan(spec: &Spec, by_cm: bool) -> Result<Plan> {
    let plan = spec
        .test
        .plan()
        .ok_or_else(|| Error::limit("it uses no RDMA device"))?;
    if plan.service != Service::Rc {
        return Err(Error::limit(format!(
            "with a qperf: it connects {} by LIDs only, which RoCE and iWARP have not; use rperf on both ends",
            plan.service
        )));
    }
    if !by_cm {
        return Err(Error::limit(
            "with a qperf: without rdma_cm it connects by LIDs only, which RoCE and iWARP have not; give --use-cm (-cm1)",
        ));
    }
    if matches!(spec.limit, Limit::Messages(_)) && spec.test != Test::RcBw {
        return Err(Error::limit(
            "with a qperf: it ends by time only; give --time (-t)",
        ));
    }
    Ok(plan)
}

/// The peer's address in the one family that qperf's rdma_cm has.
fn ipv4(address: SocketAddr, port: u16) -> Result<SocketAddr> {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => Ok(SocketAddr::new(ip, port)),
        ip @ IpAddr::V6(_) => Err(Error::limit(format!(
            "qperf uses rdma_cm over IPv4 only: name the host by an IPv4 address instead of {ip}"
        ))),
    }
}
