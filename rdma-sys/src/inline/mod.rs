//! The headers' `static inline` functions and function-like macros, one file an object.

mod context;
mod cq;
mod mr;
mod qp;
mod table;
mod wc;
mod wr;

pub use context::*;
pub use cq::*;
pub use mr::*;
pub use qp::*;
pub use wc::*;
pub use wr::*;

use table::{call, unsupported, verbs_get_ctx_op};
