//! Output at an interval: redrawn on a terminal, appended elsewhere.

use std::io::{IsTerminal, Write, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::interrupt::Interrupt;
use base::peer_text::printable_lines;
use console::{Key, Term};

/// Longest time between two checks whether to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// The output of a command that repeats.
#[derive(Debug)]
pub(super) struct Screen {
    term: Term,
    is_terminal: bool,
    quit: Arc<AtomicBool>,
    interrupt: Interrupt,
}

impl Screen {
    /// Prepares the output. On a terminal, the key `q` and Ctrl-C end the command.
    ///
    /// # Errors
    /// Returns an error if signals cannot be caught.
    pub(super) fn new() -> Result<Self> {
        let this = Self {
            term: Term::stdout(),
            is_terminal: stdout().is_terminal(),
            quit: Arc::default(),
            interrupt: Interrupt::on_signals()?,
        };
        if this.is_terminal && std::io::stdin().is_terminal() {
            let (quit, term) = (Arc::clone(&this.quit), this.term.clone());
            std::thread::spawn(move || {
                while !quit.load(Ordering::Relaxed) {
                    // Ctrl-C is an error.
                    if matches!(term.read_key(), Ok(Key::Char('q') | Key::Escape) | Err(_)) {
                        quit.store(true, Ordering::Relaxed);
                    }
                }
            });
        }
        Ok(this)
    }

    /// Returns `true` if the output replaces the previous one.
    pub(super) fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Shows a text. On a terminal it replaces the previous one, as far as it fits.
    ///
    /// # Errors
    /// Returns an error if the output is closed.
    pub(super) fn show(&self, text: &str) -> Result<()> {
        let text = &printable_lines(text);
        let failed = |e: std::io::Error| Error::system("cannot write the output", &e);
        if !self.is_terminal {
            let mut out = stdout().lock();
            let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            return written.map_err(failed);
        }
        let rows = usize::from(self.term.size().0).saturating_sub(2);
        let visible: Vec<&str> = text.lines().take(rows).collect();
        self.term.clear_screen().map_err(failed)?;
        let page = visible.join("\n") + "\nq ends\n";
        self.term.write_str(&page).map_err(failed)
    }

    /// Waits for an interval. Returns `false` if the command ends.
    pub(super) fn wait(&self, interval: Duration) -> bool {
        let deadline = Instant::now() + interval;
        loop {
            if self.interrupt.is_set() || self.quit.load(Ordering::Relaxed) {
                return false;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            std::thread::sleep(left.min(CHECK_INTERVAL));
        }
    }
}
