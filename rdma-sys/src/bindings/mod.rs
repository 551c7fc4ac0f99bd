//! The output of bindgen. `rdma-sys/regenerate` writes all files of this directory except this one.
#![allow(missing_docs, reason = "the manual pages document these names")]
#![allow(
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    reason = "the names are those of C"
)]
#![allow(
    missing_debug_implementations,
    reason = "bindgen cannot derive it for unions and mutexes"
)]
#![allow(
    clippy::pedantic,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    reason = "generated"
)]

/// Implements `Default` with all bytes zero, padding included, for types that hold pointers, arrays
/// and unions.
macro_rules! zeroed {
    ($($name:ident)*) => {$(
        impl Default for $name {
            fn default() -> Self {
                let mut value = core::mem::MaybeUninit::<Self>::uninit();
                // SAFETY: these types of C consist of integers, raw pointers, optional function
                // pointers, and structures and unions of them. All bytes zero are valid for each.
                unsafe {
                    core::ptr::write_bytes(value.as_mut_ptr(), 0, 1);
                    value.assume_init()
                }
            }
        }
    )*};
}

#[cfg(feature = "rdmacm")]
mod cm;
#[cfg(feature = "efa")]
mod efa;
#[cfg(feature = "mlx5")]
mod mlx5;
mod newer;
#[cfg(feature = "rdmacm")]
mod newer_cm;
#[cfg(feature = "umad")]
mod umad;
mod verbs;

#[cfg(feature = "rdmacm")]
pub use cm::*;
#[cfg(feature = "efa")]
pub use efa::*;
#[cfg(feature = "mlx5")]
pub use mlx5::*;
pub use newer::*;
#[cfg(feature = "rdmacm")]
pub use newer_cm::*;
#[cfg(feature = "umad")]
pub use umad::*;
pub use verbs::*;
