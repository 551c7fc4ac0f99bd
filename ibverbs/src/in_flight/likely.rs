//! Which way the data path goes.

/// Says to the compiler which way straight code should go.
#[cold]
#[inline]
pub(crate) fn less_likely() {}
