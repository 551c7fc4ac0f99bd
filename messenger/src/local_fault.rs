//! The fault of this side of a connection, for errors that would blame the peer.

use std::time::{Duration, Instant};

use ibverbs::Error;

use rdmacm::Connection;

/// Queries between two timeouts are at least this far apart, because a query is a command to the
/// adapter's firmware, and an application may call `recv` with a short timeout in a loop.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The result of the latest query, and its time.
#[derive(Debug, Default)]
pub(crate) struct LatestFault(Option<(Instant, Option<Error>)>);

impl LatestFault {
    /// Returns the fault of this side, if there is one. `is_connected` is `false` if the connection
    /// has ended or failed, which moves the queue pair to ERR.
    pub(crate) fn update(&mut self, connection: &Connection, is_connected: bool) -> Option<&Error> {
        let is_recent = |time: &Instant| time.elapsed() < MIN_INTERVAL;
        if !self.0.as_ref().is_some_and(|(time, _)| is_recent(time)) {
            let result = if is_connected {
                connection.check_device()
            } else {
                connection.check_port()
            };
            self.0 = Some((Instant::now(), result.err()));
        }
        self.0.as_ref().and_then(|(_, fault)| fault.as_ref())
    }
}
