//! `ribinfo devices`, in the layout of ibv_devices.

use base::error::Result;
use host::root::Root;
use serde::Serialize;

#[derive(Serialize)]
struct Row<'a> {
    device: &'a str,
    node_guid: &'a str,
    transport: &'a str,
}

/// Lists the devices of libibverbs.
///
/// # Errors
/// Returns an error if there are none, or if they cannot be listed.
pub(crate) fn show(root: &Root, json: bool) -> Result<String> {
    let verbs = super::verbs(root)?;
    let rows: Vec<Row<'_>> = verbs
        .devices
        .iter()
        .map(|device| Row {
            device: &device.hca_id,
            node_guid: &device.node_guid,
            transport: &device.transport,
        })
        .collect();
    if json {
        return super::json(&rows);
    }
    let mut text = format!(
        "    {:<16}\t   node GUID\n    {:<16}\t----------------\n",
        "device", "------"
    );
    for row in rows {
        text += &format!(
            "    {:<16}\t{}\n",
            row.device,
            row.node_guid.replace(':', "")
        );
    }
    Ok(text)
}
