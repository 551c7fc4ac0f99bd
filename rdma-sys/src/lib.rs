//! Raw FFI to libibverbs, librdmacm and libibumad of rdma-core.
//!
//! Names are C's, unchanged: `ibv_qp`, `ibv_post_send`, `IBV_WC_SUCCESS`. What rdma-core's man
//! pages say of a function holds for the function here. Safe interfaces are the crates `ibverbs`
//! and `rdmacm`.
//!
//! - Bindings are generated once from rdma-core 44 headers and committed; the same file serves
//!   x86_64 and aarch64. Building needs the libraries and pkg-config, not clang and not the
//!   headers.
//! - Enumerations are plain integers: `ibv_wc_status` is an alias of `c_uint` and `IBV_WC_SUCCESS`
//!   a constant of that type, so a value that a newer library adds is still a value.
//! - Unions are Rust unions. A member of an anonymous union or structure is reached through
//!   `__bindgen_anon_1`, the second one through `__bindgen_anon_2`: `wc.__bindgen_anon_1.imm_data`.
//! - The headers' `static inline` functions and function-like macros are Rust functions,
//!   `#[inline]`, of the same name and errno behaviour.
//! - Features `rdmacm` and `umad` (both default) bring `rdma_*` and `umad_*` and link librdmacm and
//!   libibumad.

// Calling C and dereferencing its pointers is all that this crate does.
#![allow(unsafe_code)]
// C's names, kept so that the manual pages apply.
#![allow(non_camel_case_types)]

mod alias;
mod bindings;
mod inline;

pub use alias::*;
pub use bindings::*;
pub use inline::*;
