//! Interruption of a running test by SIGINT (Ctrl-C), SIGTERM or SIGHUP (the terminal was closed).

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use crate::error::{Error, Kind, Result};

/// Returns the signals that end a program. SIGHUP is not one of them if it is ignored, as with
/// `nohup`.
pub fn stop_signals() -> Vec<i32> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mut signals = vec![SIGINT, SIGTERM];
    if !is_ignored(SIGHUP, &status) {
        signals.push(SIGHUP);
    }
    signals
}

/// Returns `true` if a signal is ignored, from the text of `/proc/self/status`.
fn is_ignored(signal: i32, status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// A request to end early, from a signal. A default value is never set.
#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    /// Number of the signal that arrived; 0 before.
    signal: Arc<AtomicUsize>,
    is_set: Arc<AtomicBool>,
}

impl Interrupt {
    /// Catches SIGINT, SIGTERM and SIGHUP for the rest of the process. A second signal ends the
    /// process immediately.
    pub fn on_signals() -> Result<Self> {
        let this = Self::default();
        for signal in stop_signals() {
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
        let name = match i32::try_from(signal) {
            Ok(SIGTERM) => "SIGTERM",
            Ok(SIGHUP) => "SIGHUP",
            _ => "SIGINT",
        };
        let kind = Kind::Interrupted {
            signal: u8::try_from(signal).unwrap_or_default(),
        };
        Some(Error::new(kind, format!("interrupted by {name}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_found() {
        let status = "SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n";
        assert!(is_ignored(SIGHUP, status) && !is_ignored(SIGTERM, status));
        assert!(!is_ignored(SIGHUP, "") && !is_ignored(SIGHUP, "SigIgn:\tx\n"));
    }
}
