//! Results of tests: the [`record`] of a test, [warnings](warning), and one module per output
//! format. [`control`](crate::rperf::control) and [`qperf`](crate::rperf::qperf) create records,
//! and [`run`](crate::rperf::run) prints them.

pub mod advice;
pub mod compare;
pub mod csv;
pub mod devices;
mod environment;
pub mod html;
pub mod json;
pub mod limits;
mod parameters;
pub mod record;
#[cfg(test)]
pub(in crate::rperf) mod schema;
pub mod table;
pub mod text;
pub mod warning;
