//! Work requests: an operation, the memory it uses, and its flags.
//!
//! Queue pairs and shared receive queues post them.
//!
//! Each function that creates a request for the send queue has an operation type, which names the
//! type of the request:
//!
//! | function | operation | transports |
//! |---|---|---|
//! | [`send`](fn@send), [`send_with_imm`] | [`Send`], [`SendWithImm`] | RC, UC; raw packets without immediate data |
//! | [`send`], [`send_with_imm`], with [`to`](SendRequest::to) | [`To`] | UD |
//! | [`write`](fn@write), [`write_with_imm`] | [`RdmaWrite`], [`RdmaWriteWithImm`] | RC, UC |
//! | [`read`] | [`RdmaRead`] | RC |
//! | [`compare_swap`], [`fetch_add`] | [`CompareSwap`], [`FetchAdd`] | RC |
//! | [`atomic_write`], [`flush`] | [`AtomicWrite`], [`Flush`] | RC, if requested ([`OptionalOps`](crate::qp::OptionalOps)) |
//! | [`bind`], [`invalidate`], [`send_with_inv`] | [`Bind`], [`Invalidate`], [`SendWithInv`] | RC, UC |
//!
//! XRC has the operations of RC, as [`ForSrq`] if they reach the peer. Transports of the features
//! `efa` and `mlx5` have operations with a destination, [`To`].
//!
//! # Example
//! A queue of requests that wait for free slots of the queue pair:
//! ```no_run
//! use ibverbs::{Buf, QueuePair, Rc, wr};
//! use std::collections::VecDeque;
//!
//! struct Backlog {
//!     sends: VecDeque<wr::SendRequest<wr::Send, Buf>>,
//!     recvs: VecDeque<wr::RecvRequest<Buf>>,
//! }
//!
//! impl Backlog {
//!     fn post(&mut self, qp: &mut QueuePair<Rc>) -> ibverbs::Result<()> {
//!         while qp.recv_slots_free() > 0 {
//!             let Some(request) = self.recvs.pop_front() else {
//!                 break;
//!             };
//!             qp.post_recv(request)?;
//!         }
//!         while qp.send_slots_free() > 0 {
//!             let Some(request) = self.sends.pop_front() else {
//!                 break;
//!             };
//!             qp.post_send(request)?;
//!         }
//!         Ok(())
//!     }
//! }
//! ```

mod address;
mod flush;
mod holdings;
mod message;
mod one_sided;
mod operation;
mod owner;
mod payload;
mod posted;
mod receives;
mod registered;
mod rejected;
mod request;
mod scratch;
mod to;
mod unregistered;
mod window;
mod xrc;

pub(crate) use self::address::Addresses;
pub use self::address::{Destination, HeldAddress};
pub use self::flush::{AtomicWrite, Flush, FlushPlacement};
pub use self::message::{Send, SendWithImm};
pub use self::one_sided::{CompareSwap, FetchAdd, RdmaRead, RdmaWrite, RdmaWriteWithImm};
pub use self::operation::Operation;
pub(crate) use self::owner::{OWN_DOMAIN, Owner};
pub(crate) use self::payload::{Gather, PostableTo, private, returned};
pub use self::payload::{ReadPayload, RecvPayload, SendPayload};
pub use self::posted::BatchError;
pub(crate) use self::posted::{Posted, post_error};
pub use self::receives::RecvBatch;
pub(crate) use self::receives::{Receives, RecvHandle, raw_or_null};
pub(crate) use self::rejected::refusal;
pub use self::rejected::{PostError, Rejected};
pub use self::request::{RecvRequest, SendRequest};
pub use self::request::{
    atomic_write, bind, compare_swap, fetch_add, flush, flush_region, invalidate, read, recv, send,
    send_with_imm, send_with_inv, write, write_with_imm,
};
pub(crate) use self::scratch::{SendScratch, inline_flag};
pub use self::to::To;
#[cfg(feature = "mlx5")]
pub(crate) use self::to::private::Address;
pub use self::unregistered::{Empty, Inline};
pub use self::window::{Bind, Invalidate, SendWithInv};
pub use self::xrc::ForSrq;
