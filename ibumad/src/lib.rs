//! Safe InfiniBand management datagrams: libibumad with ports and agents that are given back, and
//! datagrams as types.
//!
//! ```text
//! Ca ── by_name ──▶ PortAttr (what sysfs says)
//! Port ── open ──▶ register ──▶ Agent ── send, recv, call ──▶ Mad
//!      ├─ subnet_management ──▶ Smi  ── node_info, port_info, sm_info …
//!      └─ subnet_administration ──▶ Sa ── path
//! ```
//!
//! # Example
//! ```no_run
//! use ibumad::{Patience, Port, Target};
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
//! [`mad`] has the datagram and its records. Reading them cannot fail or panic, whatever the bytes
//! are; values that this version does not know are still values.
//!
//! # Time
//!
//! Every wait has a limit that the caller gives. The kernel returns a request whose answer did not
//! come; where it does not (a simulator), the wait ends all the same.
//!
//! # Rights
//!
//! `/dev/infiniband/umad*` belong to root, and subnet management (QP0) wants `CAP_NET_ADMIN`-like
//! rights everywhere.

mod address;
mod agent;
mod buffer;
mod ca;
mod convert;
mod errno;
mod error;
mod hint;
mod identity;
mod kind;
mod leak;
pub mod mad;
mod newtype;
mod port;
mod sa;
mod smi;

pub use crate::address::{Address, GlobalRoute};
pub use crate::agent::{Agent, AgentOptions, Methods, Patience};
pub use crate::buffer::Received;
pub use crate::ca::{Ca, LinkLayer, PortAttr, gid};
pub use crate::errno::Errno;
pub use crate::error::{Error, Result};
pub use crate::identity::{Guid, Lid};
pub use crate::kind::ErrorKind;
pub use crate::leak::leaked_objects;
pub use crate::mad::{Mad, PhysState, PortState};
pub use crate::port::Port;
pub use crate::sa::Sa;
pub use crate::smi::{Smi, Target};
