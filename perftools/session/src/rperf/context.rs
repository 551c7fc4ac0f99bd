//! The settings of a session on the server, and its results.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use base::error::Result;
use host::host_conf::HostConf;
use measure::engine::Measurement;
use measure::result::Warning;
use measure::spec::Spec;
use measure::spec::connection::ConnectionInfo;
use measure::spec::plan::Plan;
use measure::spec::test::Test;
use measure::stats::SideStats;
use measure::stats::port_counters::PortCounters;

use super::data_streams::DataStreams;
use super::rules::{Reservation, Rules};
use crate::diagnosis::Diagnosis;
use crate::probe::reflector::Reflectors;
use crate::server::connections::Registration;

/// Result of a connection on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Served {
    /// The test ran.
    Test(Test),
    /// The client requested that the server stop.
    Quit,
    /// The client only opened the port, or requested the facts of this host.
    Nothing,
}

/// Settings that are common to all connections of a server.
pub struct SessionContext<'a> {
    /// Ends the session when it is set.
    pub stop: &'a Arc<AtomicBool>,
    /// Limits and permissions.
    pub rules: &'a Rules,
    /// The connection in the table of the server.
    pub connection: &'a Registration<'a>,
    /// Called with the test when both ends are ready.
    pub on_begin: &'a dyn Fn(Test),
    /// Data connections that arrive at the port of the control connections.
    pub data_streams: &'a DataStreams,
    /// Reflectors of `rperf monitor`.
    pub reflectors: &'a Reflectors,
    /// Judges results.
    pub diagnosis: &'a dyn Diagnosis,
}

impl SessionContext<'_> {
    /// Makes the connection a session if the server allows the test. Lowers the timeout of the
    /// server's end to the limit of the server.
    ///
    /// # Errors
    /// Returns an error that names the exceeded limit and its option.
    pub(super) fn admit(&self, spec: &mut Spec) -> Result<Reservation> {
        let reservation = self.rules.admit(spec)?;
        self.connection
            .begin_session(self.rules.max_test_time(spec))?;
        spec.server.timeout = spec.server.timeout.min(self.rules.max_timeout);
        Ok(reservation)
    }
}

impl std::fmt::Debug for SessionContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionContext")
            .field("rules", self.rules)
            .finish_non_exhaustive()
    }
}

/// Functions that a session calls.
pub(super) struct SessionHooks<'a> {
    /// Called when this end is connected, before the peer is notified.
    pub(super) before_ready: &'a dyn Fn() -> Result<()>,
    /// Called with the test when both ends are ready.
    pub(super) on_begin: &'a dyn Fn(Test),
    /// Judges results.
    pub(super) diagnosis: &'a dyn Diagnosis,
}

impl<'a> SessionHooks<'a> {
    /// Creates the hooks of a server.
    pub(super) fn server(context: &SessionContext<'a>) -> Self {
        Self {
            before_ready: &|| Ok(()),
            on_begin: context.on_begin,
            diagnosis: context.diagnosis,
        }
    }

    /// Adds the changes of the port's counters to a measurement, or the cause that they show to the
    /// error of a failed test.
    pub(super) fn with_counters(
        &self,
        measurement: Result<Measurement>,
        counters: &PortCounters,
    ) -> Result<Measurement> {
        match measurement {
            Ok(mut measurement) => {
                measurement.stats.port_counters = Some(counters.changes());
                Ok(measurement)
            }
            Err(error) => {
                let seconds = counters.age().as_secs_f64();
                let changes = counters.changes();
                Err(self.diagnosis.explain(error, &changes, seconds))
            }
        }
    }
}

/// Results of a test at one end.
#[derive(Debug)]
pub(super) struct SessionResult {
    pub(super) measurement: Measurement,
    pub(super) via: ConnectionInfo,
    pub(super) peer_via: ConnectionInfo,
    pub(super) peer_host: Option<HostConf>,
    pub(super) peer_stats: SideStats,
    pub(super) peer_warnings: Vec<Warning>,
    pub(super) plan: Option<Plan>,
    pub(super) depth: u32,
}
