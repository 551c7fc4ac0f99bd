//! The result of a test: a [`record`] with a versioned schema, and its formats.

pub mod advice;
pub mod compare;
pub mod csv;
pub mod html;
pub mod json;
pub mod record;
#[cfg(test)]
mod schema;
pub mod table;
pub mod text;
pub mod via;
pub mod warning;
