//! A lock whose release announces if its value has something for the threads that sleep.
//!
//! `loom_tests.rs` compiles this file again with the lock of loom.

use std::ops::{Deref, DerefMut};

use super::sync::{Mutex, MutexGuard, PoisonError};

/// A value that threads wait for.
pub(crate) trait HasNext {
    /// Returns `true` if a thread that waits can take something.
    fn has_next(&self) -> bool;
}

/// A descriptor that threads sleep on.
pub(crate) trait Announce {
    /// Makes the descriptor readable, or not readable.
    fn announce(&self, has_next: bool);
}

/// A lock that calls [`Announce`] before it is released, if [`HasNext`] has changed. So no thread
/// can change the value and leave others asleep.
#[derive(Debug)]
pub(crate) struct AnnouncingLock<T, A> {
    inner: Mutex<Announced<T>>,
    descriptor: A,
}

#[derive(Debug)]
struct Announced<T> {
    value: T,
    /// The last announcement.
    has_next: bool,
}

impl<T: HasNext, A: Announce> AnnouncingLock<T, A> {
    /// Creates the lock of a value that has nothing to take. The descriptor is not readable.
    pub(crate) fn new(value: T, descriptor: A) -> Self {
        let inner = Mutex::new(Announced {
            value,
            has_next: false,
        });
        Self { inner, descriptor }
    }

    pub(crate) fn lock(&self) -> AnnouncingGuard<'_, T, A> {
        AnnouncingGuard {
            inner: self.inner.lock().unwrap_or_else(PoisonError::into_inner),
            descriptor: &self.descriptor,
        }
    }

    pub(crate) fn descriptor(&self) -> &A {
        &self.descriptor
    }
}

/// The value of an [`AnnouncingLock`] while it is locked.
pub(crate) struct AnnouncingGuard<'l, T: HasNext, A: Announce> {
    inner: MutexGuard<'l, Announced<T>>,
    descriptor: &'l A,
}

impl<T: HasNext, A: Announce> Deref for AnnouncingGuard<'_, T, A> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner.value
    }
}

impl<T: HasNext, A: Announce> DerefMut for AnnouncingGuard<'_, T, A> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner.value
    }
}

impl<T: HasNext, A: Announce> Drop for AnnouncingGuard<'_, T, A> {
    fn drop(&mut self) {
        let has_next = self.inner.value.has_next();
        if std::mem::replace(&mut self.inner.has_next, has_next) != has_next {
            self.descriptor.announce(has_next);
        }
    }
}
