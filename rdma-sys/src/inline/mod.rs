//! The `static inline` functions and function-like macros of the headers, one file per object.

mod ah;
#[cfg(feature = "rdmacm")]
mod cm;
#[cfg(feature = "rdmacm")]
mod cm_post;
mod context;
mod counter;
mod cq;
mod dm;
mod domain;
#[cfg(feature = "efa")]
mod efa;
mod flow;
#[cfg(feature = "mlx5")]
mod mlx5;
mod mr;
mod mw;
mod qp;
mod srq;
mod table;
#[cfg(feature = "umad")]
mod umad;
mod wc;
mod wq;
mod wr;

pub use ah::*;
#[cfg(feature = "rdmacm")]
pub use cm::*;
#[cfg(feature = "rdmacm")]
pub use cm_post::*;
pub use context::*;
pub use counter::*;
pub use cq::*;
pub use dm::*;
pub use domain::*;
#[cfg(feature = "efa")]
pub use efa::*;
pub use flow::*;
#[cfg(feature = "mlx5")]
pub use mlx5::*;
pub use mr::*;
pub use mw::*;
pub use qp::*;
pub use srq::*;
#[cfg(feature = "umad")]
pub use umad::*;
pub use wc::*;
pub use wq::*;
pub use wr::*;

use table::{call, unsupported, verbs_get_ctx_op};
