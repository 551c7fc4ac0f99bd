//! The tests: a table, and what is derived from it.

#[cfg(test)]
mod coverage;
mod names;
mod properties;
mod table;

pub use table::Test;
