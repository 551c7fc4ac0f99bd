//! The output of the subcommands. `stat`, `links` and `sm` have the layouts of ibstat, `rdma link`
//! and sminfo, which scripts read.

#![allow(clippy::format_push_string, reason = "the output is built as a string")]

pub mod check;
pub mod devices;
pub mod gids;
pub mod links;
pub(crate) mod sm;
pub mod stat;

use base::error::{Error, Result};
use host::device::{self, Device};
use host::fact::Fact;
use host::root::Root;
use host::verbs::Verbs;
use serde::Serialize;

/// Exit status if facts cannot be read, or if a check found a fault.
pub(super) const PROBLEM: u8 = 1;

/// Returns the devices of the kernel.
pub(super) fn devices(root: &Root) -> Result<Vec<Device>> {
    let devices = device::all(root);
    if devices.is_empty() {
        return Err(no_device());
    }
    Ok(devices)
}

/// Returns the error of a host without an RDMA device.
pub(crate) fn no_device() -> Error {
    Error::device("no RDMA device on this host")
        .with_help("`ribinfo check modules` finds missing drivers")
}

/// Returns the devices that libibverbs lists.
fn verbs(root: &Root) -> Result<Fact<Verbs>> {
    let verbs = root.probe().verbs;
    if verbs.devices.is_empty() && root.list("/sys/class/infiniband").is_empty() {
        // Without a device, the error of libibverbs is the missing kernel module.
        return Err(no_device());
    }
    match &verbs.error {
        Some(error) => Err(Error::device(error.as_str())),
        None if verbs.devices.is_empty() => Err(Error::device(
            "libibverbs finds none of the RDMA devices of this host",
        )
        .with_help("`ribinfo check nodes` finds the cause, such as a container without them")),
        None => Ok(verbs),
    }
}

/// Writes each item on a line of its own.
pub fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items
        .into_iter()
        .fold(String::new(), |text, item| text + &item.to_string() + "\n")
}

/// Writes a value as JSON with a final newline.
pub(super) fn json<T: Serialize>(value: &T) -> Result<String> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::protocol(format!("cannot write JSON: {e}")))?;
    Ok(text + "\n")
}
