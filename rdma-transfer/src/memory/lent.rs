//! Values of the program whose bytes a region consists of.

use std::any::Any;
use std::sync::{Arc, Mutex};

use crate::deferred::drop_value;
use crate::failure::lock;

/// Place for the value from which a region was registered, after the memory was deregistered.
#[derive(Debug, Default)]
pub(crate) struct Place(pub(crate) Mutex<Option<Box<dyn Any + Send>>>);

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(value) = lock(&self.0).take() {
            drop_value(value);
        }
    }
}

pub(crate) type Returned = Arc<Place>;

/// A value whose bytes are registered. It goes to its place when it is dropped.
pub(crate) struct Lent<T: Send + 'static> {
    /// `None` only while it is dropped.
    pub(crate) value: Option<T>,
    pub(crate) returned: Returned,
}

impl<T: Send + AsRef<[u8]>> AsRef<[u8]> for Lent<T> {
    fn as_ref(&self) -> &[u8] {
        self.value.as_ref().map_or(&[], T::as_ref)
    }
}

impl<T: Send + AsMut<[u8]>> AsMut<[u8]> for Lent<T> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.value.as_mut().map_or(&mut [], T::as_mut)
    }
}

impl<T: Send + 'static> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(value) = self.value.take() {
            *lock(&self.returned.0) = Some(Box::new(value));
        }
    }
}

/// Bytes of an owner that several devices register.
pub(crate) struct SharedOwner<T: Send + 'static>(pub(crate) Arc<Lent<T>>);

impl<T: Send + AsRef<[u8]>> AsRef<[u8]> for SharedOwner<T> {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}
