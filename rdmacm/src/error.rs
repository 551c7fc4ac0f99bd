//! Errors of connection setup, which extend those of [`ibverbs`] by the peer's rejection.

use std::{fmt, io};

use ibverbs::{Errno, Error, ErrorKind};

use crate::convert::failed;
use crate::event::{CmEventType, Event};
use crate::help;
use crate::reject::RejectReason;

/// A rejected connection: the reason and the peer's private data.
///
/// # Example
/// ```no_run
/// use rdmacm::{ConnectError, Rejection};
/// # fn f(error: ConnectError) {
/// if let Some(Rejection {
///     reason,
///     private_data,
///     ..
/// }) = error.rejection()
/// {
///     println!("{reason}: {}", String::from_utf8_lossy(private_data));
/// }
/// # }
/// ```
#[doc(alias = "rdma_reject")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Reason of the rejection.
    pub reason: RejectReason,
    /// Private data from the peer's application. On InfiniBand and RoCE it is padded with zeros to
    /// 148 bytes.
    pub private_data: Vec<u8>,
}

/// Error of a connection that could not be established.
///
/// Consists of an [`ibverbs::Error`] and, if the peer or its kernel rejected the request, the
/// [`Rejection`]. The operator `?` converts it to an [`ibverbs::Error`].
///
/// # Example
/// ```no_run
/// # use std::time::Duration;
/// # use rdmacm::{ConnectParams, ReadyRoute};
/// # fn connect(ready: ReadyRoute) {
/// match ready.connect(&ConnectParams::default(), Duration::from_secs(5)) {
///     Ok(connection) => drop(connection),
///     Err(error) => match error.rejection() {
///         Some(rejection) if rejection.reason.has_no_listener() => println!("the server is not running yet"),
///         _ => println!("{error}"),
///     },
/// }
/// # }
/// ```
#[doc(alias = "rdma_connect")]
pub struct ConnectError {
    error: Error,
    rejection: Option<Rejection>,
}

impl ConnectError {
    /// Returns the error: kind, errno, message and remedy.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the rejection, if the peer rejected the request.
    pub fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }

    pub(crate) fn rejected(
        verb: &'static str,
        detail: &dyn fmt::Display,
        rejection: Rejection,
    ) -> Self {
        let message = printable(&rejection.private_data);
        let text = match message {
            Some(message) => format!(
                "{detail}: {}, with the message {message:?}",
                rejection.reason
            ),
            None => format!("{detail}: {}", rejection.reason),
        };
        let error = Error::new(ErrorKind::Disconnected, verb, text)
            .with_io_kind(io::ErrorKind::ConnectionRefused);
        let error = match rejection.reason.help() {
            Some(help) if message.is_none() => error.with_help(help),
            _ => error,
        };
        Self {
            error,
            rejection: Some(rejection),
        }
    }

    /// Converts an event that arrived instead of the expected one.
    pub(crate) fn from_event(verb: &'static str, detail: &dyn fmt::Display, event: &Event) -> Self {
        let status = event.status();
        let errno = Errno(status.wrapping_abs());
        match event.event_type() {
            CmEventType::REJECTED => {
                let rejection = Rejection {
                    reason: RejectReason(status),
                    private_data: event.private_data().to_vec(),
                };
                Self::rejected(verb, detail, rejection)
            }
            CmEventType::UNREACHABLE if status > 0 && event.datagram().is_some() => {
                let reason = RejectReason::from_service_status(status);
                Self::rejected(
                    verb,
                    detail,
                    Rejection {
                        reason,
                        private_data: event.private_data().to_vec(),
                    },
                )
            }
            CmEventType::UNREACHABLE => Error::new(
                ErrorKind::TimedOut,
                verb,
                format!("{detail}: the peer did not answer"),
            )
            .with_help(help::NO_ANSWER)
            .into(),
            CmEventType::ADDR_ERROR
            | CmEventType::ROUTE_ERROR
            | CmEventType::CONNECT_ERROR
            | CmEventType::MULTICAST_ERROR => failed(verb, errno, detail).into(),
            CmEventType::DEVICE_REMOVAL => Error::new(
                ErrorKind::NotFound,
                verb,
                format!("{detail}: the device was removed"),
            )
            .into(),
            CmEventType::DISCONNECTED => Error::new(
                ErrorKind::Disconnected,
                verb,
                format!("{detail}: the peer disconnected during the handshake"),
            )
            .into(),
            other => Error::new(
                ErrorKind::Os,
                verb,
                format!("{detail}: unexpected event {other}, status {status}"),
            )
            .into(),
        }
    }
}

/// Returns private data as text, without zero padding, if it is printable.
fn printable(data: &[u8]) -> Option<&str> {
    let end = data.iter().rposition(|&byte| byte != 0)?;
    let text = std::str::from_utf8(&data[..=end]).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

impl From<Error> for ConnectError {
    fn from(error: Error) -> Self {
        Self {
            error,
            rejection: None,
        }
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        error.error
    }
}

/// Wraps the error. Its kind is [`ConnectionRefused`](io::ErrorKind::ConnectionRefused) if the peer
/// rejected the request, otherwise that of the [`ibverbs::Error`].
impl From<ConnectError> for io::Error {
    fn from(error: ConnectError) -> Self {
        let kind = error.error.io_kind();
        Self::new(kind, error)
    }
}

/// Writes the message and the remedy, for a `main` that returns the error; with `{:#?}` the fields.
impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            return f
                .debug_struct("ConnectError")
                .field("error", &self.error)
                .field("rejection", &self.rejection)
                .finish();
        }
        fmt::Debug::fmt(&self.error, f)
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for ConnectError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejections_show_the_reason_and_the_private_data() {
        let mut private_data = b"busy: 64 clients".to_vec();
        private_data.resize(148, 0);
        let rejection = Rejection {
            reason: RejectReason::CONSUMER_DEFINED,
            private_data,
        };
        let error = ConnectError::rejected("rdma_connect", &"10.99.0.1:7471", rejection.clone());
        assert_eq!(
            error.to_string(),
            "rdma_connect: 10.99.0.1:7471: rejected by the peer's application, with the message \"busy: 64 clients\""
        );
        assert_eq!(error.rejection(), Some(&rejection));
        let debug = format!("{error:?}");
        assert!(
            debug.starts_with("rdma_connect: 10.99.0.1:7471: rejected"),
            "{debug}"
        );
        assert!(format!("{error:#?}").contains("private_data"));
        let wrapped = io::Error::from(error);
        assert_eq!(wrapped.kind(), io::ErrorKind::ConnectionRefused);
        let error = wrapped.downcast::<ConnectError>().expect("the original");
        assert_eq!(Error::from(error).kind(), ErrorKind::Disconnected);
    }

    #[test]
    fn connect_error_converts_to_io_error_and_repeats_no_text() {
        let error = Error::from_errno("rdma_connect", Errno(libc::ETIMEDOUT), "10.99.0.1:7471");
        let error = ConnectError::from(error);
        let source = std::error::Error::source(&error).expect("the errno");
        assert_eq!(source.to_string(), "os error 110");
        assert!(source.is::<io::Error>());
        assert_eq!(io::Error::from(error).kind(), io::ErrorKind::TimedOut);
    }

    #[test]
    fn only_printable_private_data_is_shown() {
        assert_eq!(printable(b"no\0\0"), Some("no"));
        assert_eq!(printable(b"\0\0"), None);
        assert_eq!(printable(b""), None);
        assert_eq!(printable(b"a\0b"), None);
        assert_eq!(printable(&[0xff, 1]), None);
    }
}
