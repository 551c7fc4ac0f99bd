//! The tests: their names, and a table of their properties.

mod id;
mod names;
mod properties;
mod table;

pub use id::Test;
