//! Options of identifiers (`rdma_set_option`).

#![allow(unsafe_code)]

use std::fmt;

use ibverbs::{Error, ErrorKind, Result};
use rdma_sys::{
    RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR,
    RDMA_OPTION_ID_TOS, rdma_set_option,
};

use crate::convert::zero_or_last;
use crate::id::Id;

const VERB: &str = "rdma_set_option";

/// Options to set before the identifier is bound to an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IdOptions {
    pub(crate) type_of_service: Option<u8>,
    pub(crate) reuse_address: Option<bool>,
    pub(crate) af_only: Option<bool>,
    pub(crate) ack_timeout: Option<u8>,
}

impl IdOptions {
    pub(crate) fn apply(self, id: &Id, detail: &dyn fmt::Display) -> Result<()> {
        if let Some(value) = self.type_of_service {
            set(
                id,
                RDMA_OPTION_ID_TOS,
                value,
                &format_args!("{detail}: type of service {value}"),
            )?;
        }
        if let Some(value) = self.reuse_address {
            set(
                id,
                RDMA_OPTION_ID_REUSEADDR,
                i32::from(value),
                &format_args!("{detail}: address reuse"),
            )?;
        }
        if let Some(value) = self.af_only {
            set(
                id,
                RDMA_OPTION_ID_AFONLY,
                i32::from(value),
                &format_args!("{detail}: one address family only"),
            )?;
        }
        if let Some(value) = self.ack_timeout {
            if value > 31 {
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    VERB,
                    format!("{detail}: ack_timeout {value}"),
                )
                .with_help("use at most 31; the timeout is 4.096 µs × 2^ack_timeout"));
            }
            set(
                id,
                RDMA_OPTION_ID_ACK_TIMEOUT,
                value,
                &format_args!("{detail}: ack_timeout {value}"),
            )?;
        }
        Ok(())
    }
}

fn set<T: Copy>(id: &Id, name: u32, mut value: T, detail: &dyn fmt::Display) -> Result<()> {
    let (level, name) = (RDMA_OPTION_ID as i32, name as i32);
    // SAFETY: `id` is alive. The value is valid during the call and has the size that is passed.
    let returned = unsafe {
        rdma_set_option(
            id.as_ptr(),
            level,
            name,
            (&raw mut value).cast(),
            size_of::<T>(),
        )
    };
    zero_or_last(VERB, detail, returned)
}
