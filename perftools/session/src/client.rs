//! The client: runs each test over a control connection of its own, with an rperf or a qperf.

use base::error::Result;
use measure::spec::Spec;
use measure::stats::monitor::MonitorOptions;
use measure::transport::Backend;

use crate::answer::Answer;
use crate::connect::{self, Connection, ServerAddr};
use crate::diagnosis::Diagnosis;
use crate::{qperf, rperf};

/// Runs one test with a server.
pub fn run<B: Backend>(
    server_addr: &ServerAddr,
    spec: &Spec,
    backend: &B,
    diagnosis: &dyn Diagnosis,
    monitor_options: MonitorOptions<'_>,
) -> Result<Answer> {
    let interrupt = &server_addr.interrupt;
    match connect::open(server_addr, spec.client.timeout)? {
        Connection::Rperf(stream) => {
            rperf::client::run(stream, spec, backend, diagnosis, monitor_options, interrupt)
        }
        Connection::Qperf(stream) => qperf::client::run(stream, spec, monitor_options, interrupt),
    }
}
