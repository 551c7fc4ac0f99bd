//! Compares the cost of the safe data path with that of C. Both run on libibverbs and libmlx5, with
//! a model of the adapter. See `README.md`.

mod cases;
mod raw;
mod rig;
mod safe;

pub use cases::{CASES, Case, VARIANTS};
pub use rig::{PEER_STEPS, Rig, Verbs};
