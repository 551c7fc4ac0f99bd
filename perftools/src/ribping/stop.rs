//! Ctrl-C and SIGTERM end a program in good order.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::common::error::{Error, Result};

/// The longest wait without a look at the flag. Not every wait ends at a signal: the simulated
/// fabric's do not.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Whether to stop.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Set at SIGINT and SIGTERM; the second one ends the process at once.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn at_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&stop.0),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.0)))
            .map_err(|e| Error::system("cannot catch signals", &e))?;
        }
        Ok(stop)
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Stops.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
