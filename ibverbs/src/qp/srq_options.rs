//! Shared receive queues as values: what one is made with, how it stands, and of which type it is.

use super::slab::RecvSlab;
use crate::error::{Error, Result};
use crate::kind::ErrorKind;

/// What a shared receive queue is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SrqOptions {
    /// Receives that can be in flight.
    pub max_wr: u32,
    /// Scatter entries of a receive.
    pub max_sge: u32,
    /// Receives that one batch can hold.
    pub max_batch: u32,
}

impl Default for SrqOptions {
    fn default() -> Self {
        Self { max_wr: 256, max_sge: 1, max_batch: 32 }
    }
}

impl SrqOptions {
    /// Refuses more receives than the library can tell apart.
    pub(super) fn check(self, verb: &'static str, what: impl FnOnce() -> String) -> Result<()> {
        if self.max_wr <= RecvSlab::MAX {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, verb, what())
            .with_hint(format!("this library tells at most {} receives in flight apart", RecvSlab::MAX)))
    }
}

/// How a shared receive queue stands (`struct ibv_srq_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqAttr {
    /// Receives that the device's queue holds.
    pub max_wr: u32,
    /// Scatter entries of a receive.
    pub max_sge: u32,
    /// Below how many receives an event comes; 0 for never.
    pub limit: u32,
}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Basic {}
    impl Sealed for super::Xrc {}
}

/// The type of a [`SharedReceiveQueue`](crate::SharedReceiveQueue).
pub trait SrqType: private::Sealed + 'static {}

/// A shared receive queue of queue pairs of this process (`IBV_SRQT_BASIC`): each is
/// [made with it](crate::ProtectionDomain::create_qp_with_srq).
#[derive(Clone, Copy, Debug)]
pub struct Basic;

impl SrqType for Basic {}

/// A shared receive queue of an [XRC domain](crate::XrcDomain) (`IBV_SRQT_XRC`): senders name it in their requests.
#[derive(Clone, Copy, Debug)]
pub struct Xrc;

impl SrqType for Xrc {}
