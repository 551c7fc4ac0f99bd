//! Structures of the kernel's interface to user space.
//!
//! Field names and order are those of the kernel's headers (`rdma/*.h`). All integers have the
//! byte order of the processor unless their type says otherwise.

#![allow(
    clippy::struct_field_names,
    reason = "the names are those of the kernel"
)]

pub(crate) mod core;
pub(crate) mod efa;
pub(crate) mod ioctl;
pub(crate) mod mlx5;
pub(crate) mod rdma_cm;
