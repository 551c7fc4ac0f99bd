//! Memory that stays where it is and is used through pointers.

#![allow(unsafe_code)]

use std::ptr::NonNull;

/// Plain values that are used through pointers only, so that pointers into them stay good while they are written one by one: the device
/// library is pointed into them from one call to the next, or the data path goes to them without asking whether they are there.
pub(crate) struct Fixed<T>(NonNull<[T]>);

// SAFETY: the one owner of the values.
unsafe impl<T: Send> Send for Fixed<T> {}
// SAFETY: a shared one gives out a pointer only.
unsafe impl<T: Sync> Sync for Fixed<T> {}

impl<T: Copy> Fixed<T> {
    /// So many of the value.
    pub(crate) fn of(value: T, count: usize) -> Self {
        let values: Box<[T]> = vec![value; count].into();
        // SAFETY: a box is not null.
        Self(unsafe { NonNull::new_unchecked(Box::into_raw(values)) })
    }

    pub(crate) fn new(count: usize) -> Self
    where
        T: Default,
    {
        Self::of(T::default(), count)
    }
}

impl<T> Fixed<T> {
    /// The first value.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr().cast()
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: made from a box in `of`, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
