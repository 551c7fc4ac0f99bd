//! Interruption of a running test by SIGINT (Ctrl-C) or SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Kind, Result};

/// A request to end early, from a signal. A default value is never set.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Number of the signal that arrived; 0 before.
    signal: Arc<AtomicUsize>,
    is_set: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches SIGINT and SIGTERM for the rest of the process. A second signal ends the process
    /// immediately.
    ///
    /// # Errors
    /// Returns an error if a signal handler cannot be installed.
    pub fn on_signals() -> Result<Self> {
        let this = Self::default();
        for signal in [SIGINT, SIGTERM] {
            let install = || {
                // Handlers run in the order of registration, so the first signal only sets the
                // flag that makes the second one final.
                flag::register_conditional_default(signal, Arc::clone(&this.is_set))?;
                let number = usize::try_from(signal).unwrap_or_default();
                flag::register_usize(signal, Arc::clone(&this.signal), number)?;
                flag::register(signal, Arc::clone(&this.is_set))
            };
            install().map_err(|e| Error::system("cannot catch signals", &e))?;
        }
        Ok(this)
    }

    /// Returns `true` if a signal has arrived.
    #[inline]
    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Returns the flag that a signal sets.
    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.is_set
    }

    /// Returns the error of an interrupted program; `None` if no signal has arrived.
    pub fn error(&self) -> Option<Error> {
        if !self.is_set() {
            return None;
        }
        let signal = self.signal.load(Ordering::Relaxed);
        let name = if i32::try_from(signal) == Ok(SIGTERM) {
            "SIGTERM"
        } else {
            "SIGINT"
        };
        let kind = Kind::Interrupted {
            signal: u8::try_from(signal).unwrap_or_default(),
        };
        Some(Error::new(kind, format!("interrupted by {name}")))
    }
}
