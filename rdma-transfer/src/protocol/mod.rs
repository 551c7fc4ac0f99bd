//! The agreement of two engines: their messages, the jobs of transfers, and the states of paths.
//!
//! Nothing here calls a verb. `exploration_tests` visits every order of the steps of two sides.

pub(crate) mod arrivals;
pub(crate) mod control;
pub(crate) mod deadlines;
pub(crate) mod immediates;
pub(crate) mod message;
pub(crate) mod path;
pub(crate) mod progress;
mod protection;
pub(crate) mod records;
pub(crate) mod remote_region;
pub(crate) mod signal;
pub(crate) mod stripe;
pub(crate) mod work;

#[cfg(test)]
mod exploration_tests;

pub use protection::Token;
