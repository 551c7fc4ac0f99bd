//! Locks and atomics of the modules that `loom_tests.rs` compiles with those of loom.

pub(crate) use std::sync::atomic::{AtomicU32, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
