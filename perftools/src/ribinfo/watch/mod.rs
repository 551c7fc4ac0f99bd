//! `ribinfo counters` and `ribinfo top`: counters and their rates, once or at an interval.

pub mod counters;
mod screen;
pub mod top;
