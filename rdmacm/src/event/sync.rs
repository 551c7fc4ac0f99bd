//! The lock of the module that `loom_tests.rs` compiles with that of loom.

pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
