//! Fixtures shared by the tests of this workspace.
//!
//! | module | contents |
//! |---|---|
//! | [`corpus`] | the inputs of a fuzzing target |
//! | [`hostile`] | hostile peers of every protocol, and the limits of each |
//! | [`lab`] | the devices that device tests run on, and their network interfaces |
//! | [`leak_check`] | the kernel's count of RDMA objects before and after a test |
//! | [`option_defaults`] | documented defaults of option structs |
//! | [`process`] | child processes: output, readiness, termination |
//! | [`fabric`] | a simulated InfiniBand fabric (ibsim and opensm) |
//! | `startup` | the signals, umask and limits of each program that links this crate |
//! | [`usage`] | memory, files and threads of a process |
//! | [`temp_dir`] | a directory that is removed when it is dropped |
//! | [`text`] | assertions on texts |
//! | `udmabuf` | dma-bufs of host memory, with the feature of this name |
//! | [`random`] | a random number generator with a fixed seed |
//!
//! Without features the crate uses only the standard library and, before `main`, `libc`. Tests that
//! run under Miri can depend on it.

pub mod corpus;
pub mod fabric;
pub mod hostile;
pub mod lab;
pub mod leak_check;
pub mod option_defaults;
pub mod process;
pub mod random;
#[cfg(not(miri))]
mod startup;
pub mod temp_dir;
pub mod text;
#[cfg(feature = "udmabuf")]
pub mod udmabuf;
pub mod usage;
