//! Type 2 windows bound by requests of a queue pair.

#![allow(unsafe_code)]

use std::sync::Weak;

use super::window::Bound;

/// Type 2 windows bound by requests of one queue pair, which must be freed before it.
///
/// Otherwise Soft-RoCE waits 50 seconds for a bound window when it destroys the queue pair, and
/// then destroys it anyway.
#[derive(Debug, Default)]
pub(crate) struct BoundWindows(Vec<Weak<Bound>>);

impl BoundWindows {
    #[inline]
    pub(crate) fn extend(&mut self, window: Option<Weak<Bound>>) {
        if let Some(window) = window {
            self.push(window);
        }
    }

    fn push(&mut self, window: Weak<Bound>) {
        if self.0.len() == self.0.capacity() {
            self.0.retain(|window| window.strong_count() > 0);
        }
        self.0.push(window);
    }

    /// Frees the windows that are still bound.
    ///
    /// # Safety
    /// The queue pair of the bindings must be destroyed next, without posting another request.
    pub(crate) unsafe fn free_all(&mut self) {
        for bound in self.0.drain(..).filter_map(|window| window.upgrade()) {
            // SAFETY: a Binding is posted once, and it was posted to this queue pair, which posts
            // nothing more.
            unsafe { bound.free() };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dropped_windows_do_not_accumulate() {
        let mut windows = BoundWindows::default();
        for _ in 0..100 {
            windows.extend(Some(Weak::new()));
        }
        assert!(windows.0.len() < 10, "{} entries", windows.0.len());
    }
}
