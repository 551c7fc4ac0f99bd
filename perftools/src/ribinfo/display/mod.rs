//! The output of the subcommands, in the layouts of ibv_devices, ibv_devinfo, ibstat, `rdma link`
//! and sminfo.

#![allow(clippy::format_push_string, reason = "the output is built as a string")]

pub mod check;
pub mod devices;
pub mod devinfo;
pub mod gids;
pub mod links;
pub mod sm;
pub mod stat;

mod caps;
mod columns;

use base::error::{Error, Result};
use serde::Serialize;

/// Exit status if facts cannot be read, or if a check found a fault.
pub const PROBLEM: u8 = 1;

/// Writes each item on a line of its own.
pub fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .fold(String::new(), |text, item| text + &item.to_string() + "\n")
}

/// Writes a value as JSON with a final newline.
///
/// # Errors
/// Returns an error if the value cannot be written as JSON.
pub fn json<T: Serialize>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::protocol(format!("cannot write JSON: {e}")))?;
    Ok(text + "\n")
}
