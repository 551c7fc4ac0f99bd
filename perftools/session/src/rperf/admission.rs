//! The admission of qperf clients.

use std::net::TcpStream;
use std::time::Duration;

use base::error::{Error, Result};
use measure::engine::Role;
use measure::spec::Spec;
use measure::spec::test::Test;
use measure::transport::ControlAddrs;

use super::context::{Served, SessionContext};
use crate::qperf::control_conn::ControlConn;
use crate::qperf::server as qperf_server;
use crate::qperf::server::Admission;

/// Decisions of the server about the requests of a qperf client.
struct QperfAdmission<'a> {
    context: &'a SessionContext<'a>,
    hosts: ControlAddrs,
}

impl Admission for QperfAdmission<'_> {
    fn admit(&self, spec: &mut Spec) -> Result<Box<dyn std::any::Any>> {
        let reservation = self.context.admit(spec)?;
        Ok(Box::new(reservation))
    }

    fn admit_quit(&self) -> Result<()> {
        self.context
            .rules
            .admit_quit(self.hosts.local, self.hosts.peer)
    }

    fn test_begins(&self, test: Test) {
        (self.context.on_begin)(test);
    }
}

/// Serves a qperf client. `prefix` is the part of its request that has already been read.
///
/// # Errors
/// Returns an error for the log. It has already been sent to the client.
pub(super) fn serve_qperf(
    stream: TcpStream,
    prefix: &[u8],
    context: &SessionContext<'_>,
    hosts: ControlAddrs,
) -> Result<Served> {
    if context.rules.token.is_some() {
        let error = Error::limit("the server requires a token, which qperf does not support")
            .with_help("use an rperf client with --token-file");
        reject_qperf(stream, prefix, &error);
        return Err(error);
    }
    match qperf_server::serve(
        stream,
        prefix,
        &QperfAdmission { context, hosts },
        context.stop,
    )? {
        qperf_server::Handled::Test(test) => Ok(Served::Test(test)),
        qperf_server::Handled::Quit => Ok(Served::Quit),
    }
}

/// Sends an error to a qperf client that is not served.
pub(super) fn reject_qperf(stream: TcpStream, prefix: &[u8], error: &Error) {
    const TIMEOUT: Duration = Duration::from_secs(3);
    if let Ok(conn) = ControlConn::new(stream, Role::Server, TIMEOUT, std::sync::Arc::default()) {
        // Closing a connection with unread data resets it, and the client would not get the error.
        let mut rest = vec![0; crate::qperf::request::LEN.saturating_sub(prefix.len())];
        let _ = conn.receive(&mut rest, "the request");
        conn.send_error(error);
    }
}
