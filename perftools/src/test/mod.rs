//! The names of the tests, and what each does.

mod id;
mod names;
mod nature;
mod table;

pub use id::Test;
