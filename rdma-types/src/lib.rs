//! Types shared by the crates `ibverbs`, `rdmacm` and `ibumad`, which re-export them.
//!
//! - [`Error`], [`ErrorKind`] and [`Errno`]: errors with a kind, a cause and a separate remedy;
//! - [`Guid`], [`Gid`] and [`Lid`]: the identifiers and addresses of ports;
//! - [`PortState`], [`PhysState`] and [`LinkWidth`]: what ports report;
//! - [`c_value!`]: integer newtypes for the enumerations of C and of the wire;
//! - [`setters!`]: setters of option structs;
//! - [`convert`]: one converter for each convention in which C functions report errors;
//! - [`leaked_objects`]: the count of objects that could not be destroyed.
//!
//! The crate calls none of the RDMA libraries.
//!
//! # Features
//!
//! - `serde` (off by default): [`Gid`] and [`Lid`] implement `Serialize` and `Deserialize`.

// On docs.rs, items of a feature are marked with its name.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod convert;
mod errno;
mod error;
mod gid;
mod guid;
mod kind;
mod leaked;
mod lid;
mod newtype;
mod port;
mod setters;

pub use crate::errno::Errno;
pub use crate::error::{Error, Result};
pub use crate::gid::Gid;
pub use crate::guid::Guid;
pub use crate::kind::ErrorKind;
pub use crate::leaked::{count_leaked_object, leaked_objects};
pub use crate::lid::Lid;
pub use crate::port::{LinkWidth, PhysState, PortState};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
