//! The first use of librdmacm in a process.

#![allow(unsafe_code)]

use std::sync::{Mutex, PoisonError};

use ibverbs::{Error, ErrorKind, Result};
use rdma_sys::{rdma_create_event_channel, rdma_destroy_event_channel};

/// Loads librdmacm with the feature `dlopen`, and initializes it. `call` is the function that the
/// caller calls next.
///
/// librdmacm initializes itself in its first call. Other threads take no lock once its list of
/// devices has an entry (`ucma_init`), so they would use the list and the features of the kernel
/// before both are complete.
pub(crate) fn prepare(call: &'static str) -> Result<()> {
    static IS_INITIALIZED: Mutex<bool> = Mutex::new(false);

    rdma_sys::Library::Rdmacm.load().map_err(|error| {
        Error::new(ErrorKind::Unsupported, call, error.to_string()).with_help(error.help())
    })?;
    let mut is_initialized = IS_INITIALIZED
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !*is_initialized {
        // SAFETY: the function has no preconditions.
        let channel = unsafe { rdma_create_event_channel() };
        // Otherwise the caller's call fails with the reason.
        if !channel.is_null() {
            // SAFETY: the channel was just created, and nothing uses it.
            unsafe { rdma_destroy_event_channel(channel) };
            *is_initialized = true;
        }
    }
    Ok(())
}
