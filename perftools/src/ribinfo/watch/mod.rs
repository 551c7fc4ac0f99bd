//! `ribinfo counters` and `ribinfo top`: counters and their rates, once or at an interval.

pub(crate) mod counters;
mod screen;
pub(crate) mod top;
