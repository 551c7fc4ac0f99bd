//! What `ribinfo` shows: the facts and layouts of ibv_devices, ibv_devinfo, ibstat and `rdma link`.

#![allow(
    clippy::format_push_string,
    reason = "a page of text is put together here, not a stream"
)]

pub mod devices;
pub mod devinfo;
pub mod gids;
pub mod links;
pub mod sm;
pub mod stat;

mod caps;
mod columns;

use serde::Serialize;

use crate::common::error::{Error, Result};

/// The exit status where the question is wrong, or something that was asked for cannot be answered;
/// as monitoring plug-ins say "unknown".
pub const UNKNOWN: u8 = 3;

/// Each on a line of its own.
pub fn lines<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    all.into_iter()
        .fold(String::new(), |text, one| text + &one.to_string() + "\n")
}

/// A value as JSON, with a newline.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn json<T: Serialize>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::protocol(format!("cannot write JSON: {e}")))?;
    Ok(text + "\n")
}
