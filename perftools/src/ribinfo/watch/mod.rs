//! `ribinfo counters`: counters and their rates, once or at an interval.

pub mod counters;
mod screen;
