//! The tests: a table, and what is derived from it.

mod names;
mod properties;
mod table;

pub use table::Test;
