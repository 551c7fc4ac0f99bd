//! The tests: their names, and the properties that a table gives each of them. The rest of `spec`
//! and everything above uses [`Test`].

mod id;
mod names;
mod properties;
mod table;

pub use id::Test;
