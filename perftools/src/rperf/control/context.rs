//! What a conversation is held on, and what it came to.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use super::rules::Rules;
use crate::rperf::engine::Measurement;
use crate::rperf::report::warning::Warning;
use crate::rperf::spec::connection::ConnectionInfo;
use crate::rperf::spec::plan::Plan;
use crate::rperf::spec::test::Test;
use crate::rperf::stats::SideStats;

/// What a connection came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// This test ran.
    Test(Test),
    /// The server shall end.
    Quit,
    /// Somebody looked whether the port is open, or asked what this host is.
    Nothing,
}

/// What holds for every connection of a server.
pub struct SessionContext<'a> {
    /// Ends the conversation from this end.
    pub stop: &'a Arc<AtomicBool>,
    /// What is allowed.
    pub rules: &'a Rules,
    /// Is told which test begins, once both ends are ready.
    pub begins: &'a dyn Fn(Test),
}

impl std::fmt::Debug for SessionContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Terms")
            .field("rules", self.rules)
            .finish_non_exhaustive()
    }
}

/// What an end knows after a test.
#[derive(Debug)]
pub(super) struct SessionResult {
    pub(super) measurement: Measurement,
    pub(super) via: ConnectionInfo,
    pub(super) peer_via: ConnectionInfo,
    pub(super) peer_stats: SideStats,
    pub(super) peer_warnings: Vec<Warning>,
    pub(super) plan: Option<Plan>,
    pub(super) depth: u32,
}
