//! The answer of a server to a client.

use host::host_conf::HostConf;
use measure::result::TestRun;

/// The answer to the request of a client.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a run has few of them")]
pub enum Answer {
    /// The test transferred data.
    Measured(Box<TestRun>),
    /// Configuration of both hosts.
    Conf {
        /// The client's host.
        local: HostConf,
        /// The server's host.
        remote: HostConf,
    },
    /// The server has shut down.
    Quit,
}
