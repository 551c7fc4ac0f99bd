//! Tests on a GPU.
//!
//! The integration tests of this package allocate memory of a GPU with `gpu-memory`, move it with
//! the safe verbs on the model of an mlx5 adapter, and let a kernel of the GPU write work requests.
//! `ci/gpu` runs them on a machine with an NVIDIA GPU, which needs neither an RDMA device nor a
//! network. `ci/test` runs them on a model of libcuda.
//!
//! This library has the functions of CUDA that only the tests need: kernels, host memory that they
//! access, and exports of address ranges. The kernels are in `kernels.c`. `kernels.ptx` is made
//! from it, and the driver translates it for the GPU.

mod cuda;
pub mod kernels;
mod memory;
pub mod run;

pub use cuda::{Cuda, CudaError};
pub use memory::{HostMemory, Registered};

/// Prints a fact that the table of `ci/gpu` shows.
pub fn fact(text: impl std::fmt::Display) {
    println!("fact: {text}");
}
