//! Results of tests: the record of a test, warnings, and one module per output format.
//!
//! | module | contents |
//! |---|---|
//! | [`record`] [`devices`] | what is known about a completed test; the sum of several devices |
//! | [`warning`] [`limits`] [`advice`] | faults that explain a result, limits that it exceeds, what to change |
//! | [`text`] [`table`] [`json`] [`html`] | one output format each |
//! | [`compare`] | the differences between the records of two runs |
//!
//! A format is a function from records to text. The sessions build records, and the programs print
//! the text.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

pub mod advice;
pub mod compare;
pub mod devices;
mod environment;
pub mod html;
pub mod json;
pub mod limits;
mod metric;
mod parameters;
pub mod record;
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub mod samples;
#[cfg(test)]
mod schema;
pub mod table;
pub mod text;
pub mod warning;
