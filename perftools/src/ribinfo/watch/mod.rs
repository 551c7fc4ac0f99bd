//! `ribinfo counters`: the counters of ports and their rates, once or at an interval.

pub(crate) mod counters;
mod screen;
