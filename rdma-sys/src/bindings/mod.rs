//! What bindgen made of the headers: `rdma-sys/regenerate` writes every file of this directory but
//! this one.
#![allow(missing_docs, reason = "C's man pages document C's names")]
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "C's names"
)]
#![allow(
    missing_debug_implementations,
    reason = "unions and mutexes cannot have one derived"
)]
#![allow(
    clippy::pedantic,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]

#[cfg(feature = "rdmacm")]
mod cm;
#[cfg(feature = "umad")]
mod umad;
mod verbs;

#[cfg(feature = "rdmacm")]
pub use cm::*;
#[cfg(feature = "umad")]
pub use umad::*;
pub use verbs::*;
