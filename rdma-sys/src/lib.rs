//! Raw FFI to libibverbs, librdmacm, libibumad, libefa and libmlx5 of rdma-core.
//!
//! Names are those of C: `ibv_qp`, `ibv_post_send`, `IBV_WC_SUCCESS`. The manual pages of rdma-core
//! apply to the functions of this crate. The crates `ibverbs`, `rdmacm` and `ibumad` are safe
//! interfaces to them.
//!
//! - The bindings were generated from the headers of rdma-core 44 and are committed. They are the
//!   same for x86_64 and aarch64, and do not hold for processors with pointers of 32 bits. A build
//!   needs the libraries and pkg-config, but neither clang nor the headers.
//! - Enumerations are integers: `ibv_wc_status` is an alias of `c_uint`, and `IBV_WC_SUCCESS` is a
//!   constant of that type. Values that a newer library adds are therefore valid.
//! - Unions are Rust unions. Members of an anonymous union or structure are in `__bindgen_anon_1`
//!   (those of a second one in `__bindgen_anon_2`): `wc.__bindgen_anon_1.imm_data`.
//! - The headers' `static inline` functions and function-like macros are `#[inline]` Rust functions
//!   with the same names, which treat `errno` in the same way.
//! - The features `rdmacm` and `umad` (both enabled by default) add `rdma_*` and `umad_*` and link
//!   librdmacm and libibumad. The features `efa` and `mlx5` add `efadv_*` and `mlx5dv_*` of the
//!   providers libefa and libmlx5, which are not linked.
//! - A library that is not linked is loaded when a function of it is first called, or by
//!   [`Library::load`]. A function that is missing fails with `ENOSYS`. With the feature `dlopen`
//!   no library is linked.
//! - Functions that are newer than rdma-core 44 are looked up when they are first called, in both
//!   forms. They were generated from the headers of rdma-core 65.
//! - Functions of the headers that build or read raw work queue entries of mlx5 are not included.

// The whole crate calls C functions and dereferences their pointers.
#![allow(unsafe_code)]
// The names of C are kept so that the manual pages apply.
#![allow(non_camel_case_types)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the bindings of rdma-core are those of 64-bit processors");

mod alias;
mod bindings;
mod inline;
mod library;

pub use alias::*;
pub use bindings::*;
pub use inline::*;
pub use library::{Library, LoadError};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
