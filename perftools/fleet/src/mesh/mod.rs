//! `rperf mesh` measures all pairs of many hosts and finds the slow ones.
//!
//! [`schedule`] arranges the pairs in rounds. [`coordinator`] runs them over a
//! [`Transport`](coordinator::Transport), collects [`cell`]s in a [`record`], and finds
//! [`outlier`]s, which [`verdict`] measures again and describes.

pub mod cell;
pub mod compare;
pub mod coordinator;
pub mod devices;
pub mod endpoint;
pub mod hosts;
pub mod html;
pub mod launch;
pub mod matrix;
pub mod outlier;
pub mod record;
pub mod schedule;
pub mod servers;
pub mod text;
pub mod verdict;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
