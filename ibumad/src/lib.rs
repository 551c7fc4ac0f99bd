//! Safe InfiniBand management datagrams (MADs) over libibumad. Ports and agents are closed when
//! they are dropped; datagrams and their attributes are types.
//!
//! ```text
//! Ca ── by_name ──▶ PortAttr (from sysfs)
//! Port ── open ──▶ register ──▶ Agent ── send, recv, call ──▶ Mad
//!      ├─ subnet_management ──▶ Smi  ── node_info, port_info, sm_info …
//!      └─ subnet_administration ──▶ Sa ── path
//! ```
//!
//! # Example
//! ```no_run
//! use ibumad::{Port, Target};
//!
//! let port = Port::open("mlx4_0", 1)?;
//! let smi = port.subnet_management()?;
//! let master = smi.sm_info(&Target::Lid(port.attr()?.sm_lid))?;
//! println!(
//!     "the subnet manager is {}, priority {}",
//!     master.state(),
//!     master.priority()
//! );
//! # Ok::<(), ibumad::Error>(())
//! ```
//!
//! # Datagrams
//!
//! The module [`mad`] contains the datagram and the attributes that it carries. Reading them never
//! fails and never panics, for any bytes. Values unknown to this version are represented as
//! integers.
//!
//! # Timeouts
//!
//! Every wait ends after a time limit that the caller sets. The kernel returns requests that were
//! not answered in time. The wait also ends if the kernel does not do so (a simulator).
//!
//! # Permissions
//!
//! The device nodes `/dev/infiniband/umad*` belong to root by default.

mod address;
mod agent;
mod buffer;
mod ca;
mod convert;
mod error;
#[cfg(test)]
mod fake;
pub mod mad;
mod port;
mod sa;
mod smi;

pub use rdma_types::{
    Errno, Error, ErrorKind, Gid, Guid, Lid, LinkWidth, PhysState, PortState, Result,
    leaked_objects,
};

pub use crate::address::{Address, GlobalRoute};
pub use crate::agent::{Agent, AgentOptions, Methods, RetryPolicy};
pub use crate::buffer::Received;
pub use crate::ca::{Ca, LinkLayer, PortAttr};
pub use crate::mad::Mad;
pub use crate::port::Port;
pub use crate::sa::Sa;
pub use crate::smi::{Smi, Target};

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
