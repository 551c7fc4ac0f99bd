//! The result of a test: a [`record`] with a versioned schema, and its formats.

pub mod compare;
pub mod csv;
pub mod json;
pub mod record;
pub mod table;
pub mod text;
pub mod warning;
