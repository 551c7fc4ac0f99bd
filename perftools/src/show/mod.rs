//! What `ribinfo` shows: the facts and layouts of ibv_devices, ibv_devinfo, ibstat and `rdma link`.

pub mod devices;
pub mod devinfo;
pub mod gids;
pub mod links;
pub mod sm;
pub mod stat;

mod caps;

use serde::Serialize;

use crate::error::{Error, Result};

/// A value as JSON, with a newline.
///
/// # Errors
/// The value cannot be written as JSON.
pub fn json<T: Serialize>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value).map_err(|e| Error::protocol(format!("cannot write JSON: {e}")))?;
    Ok(text + "\n")
}
