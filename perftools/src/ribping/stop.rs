//! Signals: clean shutdown, and statistics while the program runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::error::{Error, Result};
use base::interrupt::stop_signals;
use signal_hook::consts::{SIGQUIT, SIGUSR1};

/// Maximum time between two checks of the flag. A signal does not interrupt every wait, for example
/// not on the simulated fabric.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Flags that ask the program to stop, or to print statistics.
#[derive(Clone, Debug, Default)]
pub struct StopFlag {
    stop: Arc<AtomicBool>,
    statistics: Arc<AtomicBool>,
}

impl StopFlag {
    /// Creates a flag that is set on SIGINT, SIGTERM and SIGHUP. A second signal ends the process
    /// immediately. SIGQUIT and SIGUSR1 request statistics.
    pub(crate) fn on_signals() -> Result<Self> {
        let stop = Self::default();
        for signal in stop_signals() {
            signal_hook::flag::register_conditional_shutdown(
                signal,
                128 + signal,
                Arc::clone(&stop.stop),
            )
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop.stop)))
            .map_err(|e| Error::system("install signal handlers", &e))?;
        }
        for signal in [SIGQUIT, SIGUSR1] {
            signal_hook::flag::register(signal, Arc::clone(&stop.statistics))
                .map_err(|e| Error::system("install signal handlers", &e))?;
        }
        Ok(stop)
    }

    /// Returns `true` once for each request for statistics.
    pub(crate) fn take_statistics_request(&self) -> bool {
        self.statistics.swap(false, Ordering::Relaxed)
    }

    /// Returns `true` if the program should stop.
    pub(crate) fn is_set(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Asks the program to stop.
    pub(crate) fn set(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}
