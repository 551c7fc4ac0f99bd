//! The result of a test: a [`record`] with a versioned schema, and its formats.

pub mod json;
pub mod record;
pub mod text;
