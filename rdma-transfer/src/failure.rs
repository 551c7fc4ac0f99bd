//! The reasons of failures, and locks that outlive panics.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ibverbs::{Error, ErrorKind};

/// An error that several transfers report.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    kind: ErrorKind,
    text: Arc<str>,
    help: Option<Arc<str>>,
}

impl Failure {
    pub(crate) fn new(kind: ErrorKind, text: &str) -> Self {
        Self {
            kind,
            text: text.into(),
            help: None,
        }
    }

    pub(crate) fn to_error(&self, call: &'static str) -> Error {
        let error = Error::new(self.kind, call, self.text.to_string());
        match &self.help {
            Some(help) => error.with_help(help.to_string()),
            None => error,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<&Error> for Failure {
    fn from(error: &Error) -> Self {
        Self {
            kind: error.kind(),
            text: error.message().into(),
            help: error.help().map(Arc::from),
        }
    }
}

/// Locks a mutex. Its data is valid even if another thread has panicked, because every change of it
/// is complete before code that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
