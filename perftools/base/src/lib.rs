//! Basics of the RDMA tools that every other crate of them uses.
//!
//! | modules | contents |
//! |---|---|
//! | [`advice`] [`error`] | a condition and its remedy; the error of the tools, which is one |
//! | [`units`] [`histogram`] | sizes, rates and times as text; latencies |
//! | [`cpus`] [`device_id`] [`ports`] [`shell`] | lists of CPUs, device names, TCP ports, quoting |
//! | [`peer_text`] [`spelling`] | text of a peer, made safe to print; misspelled words |
//! | [`log`] | the log of a server on standard error |
//! | [`interrupt`] [`memory`] [`system`] [`threads`] | signals, limits, threads |
//!
//! The crate knows no test, no protocol and no file of a host. It prints nothing but the log.

#![forbid(unsafe_code)]
#![expect(clippy::missing_errors_doc, reason = "errors explain themselves")]

pub mod advice;
pub mod cpus;
pub mod device_id;
pub mod error;
pub mod files;
pub mod histogram;
pub mod interrupt;
pub mod log;
pub mod memory;
pub mod peer_text;
pub mod ports;
pub mod shell;
pub mod spelling;
pub mod system;
pub mod threads;
pub mod units;

#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod schema;
