//! Clean shutdown on Ctrl-C and SIGTERM.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::common::error::{Error, Result};

/// Maximum time between two checks of the flag. A signal does not interrupt every wait, for example
/// not on the simulated fabric.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// A flag that asks the program to stop.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// Creates a flag that is set on SIGINT and SIGTERM. A second signal ends the process
    /// immediately.
    ///
    /// # Errors
    /// Returns [`Kind::System`](crate::common::error::Kind::System) if a handler cannot be
    /// installed.
    pub fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&stop.0),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.0)))
            .map_err(|e| Error::system("install signal handlers", &e))?;
        }
        Ok(stop)
    }

    /// Returns `true` if the program should stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Asks the program to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
