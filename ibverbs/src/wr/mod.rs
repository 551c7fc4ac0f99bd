//! Work requests: an operation, the memory it uses, and its flags.
//!
//! Queue pairs and shared receive queues post them.

mod address;
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
mod unregistered;
mod window;
mod xrc;

pub(crate) use self::address::Addresses;
pub use self::address::{Destination, HeldAddress};
pub use self::operation::Operation;
pub(crate) use self::owner::{OWN_DOMAIN, Owner};
pub(crate) use self::payload::{Gather, PostableTo, private};
pub use self::payload::{ReadPayload, RecvPayload, SendPayload};
pub use self::posted::BatchError;
pub(crate) use self::posted::{Posted, post_error};
pub use self::receives::RecvBatch;
pub(crate) use self::receives::{Receives, RecvHandle};
pub use self::rejected::{PostError, Rejected};
pub use self::request::{RecvRequest, SendRequest};
pub use self::request::{
    bind, compare_swap, fetch_add, invalidate, read, recv, send, send_to, send_to_with_imm,
    send_with_imm, send_with_inv, write, write_with_imm,
};
pub(crate) use self::scratch::{SendScratch, inline_flag};
pub use self::unregistered::{Empty, Inline};
