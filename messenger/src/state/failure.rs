//! The errors of a messenger. They name a fault of this side, if it has one, instead of the peer.

use std::borrow::Cow;

use ibverbs::{Error, ErrorKind, Result, device::TransportType};
use rdmacm::Connection;
use rdmacm::internal::with_fault;

use super::State;
use crate::codec::VERB;

/// Remedy for messages that the peer's application does not send or take.
const NO_MESSAGE: &str =
    "check that the peer's application is running, and that it sends and receives messages";

/// Remedy for requests that neither complete nor fail, on iWARP.
const NO_ACKNOWLEDGEMENT_IWARP: &str = "check that the peer's host is running, that firewalls allow the TCP connection, and the kernel's log of both hosts (`dmesg`)";

/// The same on InfiniBand and RoCE.
const NO_ACKNOWLEDGEMENT: &str = "check that the peer's host is running, that firewalls allow UDP port 4791 if the network is RoCE, and the kernel's log of both hosts (`dmesg`)";

/// The first error of a connection, which every later call returns.
#[derive(Debug)]
pub(super) struct Failure {
    kind: ErrorKind,
    detail: Cow<'static, str>,
    help: Option<String>,
}

impl State {
    /// Returns the error of a connection that has failed or ended.
    pub(super) fn check(&mut self) -> Result<()> {
        if let Some(failure) = &self.failure {
            let detail = format!("{}: {}", self.describe(), failure.detail);
            let error = Error::new(failure.kind, VERB, detail);
            return Err(match &failure.help {
                Some(help) => error.with_help(help.clone()),
                None => error,
            });
        }
        if !self.is_drained {
            return Ok(());
        }
        Err(if self.flow.peer_has_ended() {
            let detail = format!("{}: the connection has ended", self.describe());
            Error::new(ErrorKind::Disconnected, VERB, detail)
                .with_help("call `shutdown` before dropping a messenger")
        } else {
            self.error_or_local_fault(
                ErrorKind::Disconnected,
                "the connection ended before the end of the peer's stream, so messages may be lost",
                "",
                "call `shutdown` before dropping a messenger",
            )
        })
    }

    /// Returns the error of a call that has waited too long.
    pub(crate) fn timed_out(&mut self) -> Error {
        let unfinished = self.sends_in_flight + self.controls_in_flight;
        let (detail, help) = if unfinished == 0 {
            (String::new(), NO_MESSAGE)
        } else {
            // The peer's adapter acknowledges messages even if the peer's application is stuck.
            let detail = format!("; unfinished requests of this side: {unfinished}");
            let transport = self.connection.as_ref().map(Connection::transport);
            if transport == Some(TransportType::IWARP) {
                (detail, NO_ACKNOWLEDGEMENT_IWARP)
            } else {
                (detail, NO_ACKNOWLEDGEMENT)
            }
        };
        self.error_or_local_fault(ErrorKind::TimedOut, "timed out", &detail, help)
    }

    /// Returns an error that names the fault of this side. If there is none, the error has the
    /// detail and the remedy.
    fn error_or_local_fault(
        &mut self,
        kind: ErrorKind,
        what: &str,
        detail: &str,
        help: &'static str,
    ) -> Error {
        let text = format!("{}: {what}", self.describe());
        let is_connected = !self.is_over && self.failure.is_none();
        let fault = self
            .connection
            .as_ref()
            .and_then(|connection| self.latest_fault.update(connection, is_connected));
        match fault {
            None => Error::new(kind, VERB, text + detail).with_help(help),
            Some(fault) => with_fault(&Error::new(kind, VERB, text).with_help(help), fault),
        }
    }

    /// Returns the fault of this side, if it has one.
    pub(crate) fn check_device(&self) -> Result<()> {
        match &self.connection {
            None => Ok(()),
            Some(connection) if self.failure.is_some() => connection.check_port(),
            Some(connection) => connection.check_device(),
        }
    }

    pub(super) fn fail(&mut self, kind: ErrorKind, detail: Cow<'static, str>, help: Option<&str>) {
        if self.failure.is_none() {
            self.failure = Some(Failure {
                kind,
                detail,
                help: help.map(str::to_owned),
            });
        }
        self.wake_all();
    }

    pub(super) fn fail_with(&mut self, error: &Error) {
        self.fail(error.kind(), error.message().into(), error.help());
    }

    /// Records a failed request of this side.
    pub(super) fn fail_with_completion(&mut self, error: &Error) {
        let fault = self
            .connection
            .as_ref()
            .filter(|_| self.failure.is_none())
            .and_then(|connection| connection.check_port().err());
        match fault {
            None => self.fail_with(error),
            Some(fault) => {
                let detail = format!("{}: {}", error.message(), fault.detail());
                self.fail(error.kind(), detail.into(), fault.help());
            }
        }
    }
}
