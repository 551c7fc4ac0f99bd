//! Which windows requests of a queue pair have bound.

#![allow(unsafe_code)]

use std::sync::Weak;

use super::window::Bound;

/// Windows of type 2 bound by requests of one queue pair, which must end before it: Soft-RoCE, for
/// one, waits 50 seconds for a bound one to let go of the queue pair that it destroys, and then
/// frees it all the same.
#[derive(Debug, Default)]
pub(crate) struct Windows(Vec<Weak<Bound>>);

impl Windows {
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

    /// Ends the bindings that are left.
    ///
    /// # Safety
    /// The queue pair that they were posted to is destroyed next, with no request posted between.
    pub(crate) unsafe fn end(&mut self) {
        for bound in self.0.drain(..).filter_map(|window| window.upgrade()) {
            // SAFETY: a Binding is posted once, and it was here.
            unsafe { bound.end() };
        }
    }
}
