//! Memory that stays where it is and is used through pointers.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;

/// Plain values that are used through pointers only, so that pointers into them stay good while
/// they are written one by one: the device library is pointed into them from one call to the next,
/// or the data path goes to them without asking whether they are there.
pub(crate) struct Fixed<T>(NonNull<[T]>);

// SAFETY: the one owner of the values.
unsafe impl<T: Send> Send for Fixed<T> {}
// SAFETY: a shared one gives out a pointer only.
unsafe impl<T: Sync> Sync for Fixed<T> {}

impl<T: Copy> Fixed<T> {
    /// So many of the value.
    pub(crate) fn of(value: T, count: usize) -> Self {
        Self::from(vec![value; count].into_boxed_slice())
    }

    pub(crate) fn new(count: usize) -> Self
    where
        T: Default,
    {
        Self::of(T::default(), count)
    }
}

impl<T> From<Box<[T]>> for Fixed<T> {
    fn from(values: Box<[T]>) -> Self {
        // SAFETY: a box is not null.
        Self(unsafe { NonNull::new_unchecked(Box::into_raw(values)) })
    }
}

impl<T> Fixed<T> {
    /// How many.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The first value.
    #[inline]
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.0.as_ptr().cast()
    }
}

impl<T> fmt::Debug for Fixed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixed")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

impl<T> Drop for Fixed<T> {
    fn drop(&mut self) {
        // SAFETY: made from a box, freed once.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
