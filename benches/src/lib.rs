//! Compares the cost of the safe data path with that of C. Both run on the fake provider, which
//! does the same work for both. See `README.md`.

mod cases;
mod raw;
mod rig;
mod safe;

pub use cases::{CASES, Case, VARIANTS};
pub use rig::{Rig, Verbs};
