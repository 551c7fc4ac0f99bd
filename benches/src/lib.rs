//! What the safe data path costs beside C: both on the fake provider, which takes the same time for
//! both. See `README.md`.

mod cases;
mod raw;
mod rig;
mod safe;

pub use cases::{CASES, Case, SIDES};
pub use rig::{Form, Rig};
