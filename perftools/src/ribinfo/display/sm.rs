//! `ribinfo sm`, in the layout of sminfo, for every InfiniBand port.

use base::error::{Error, Result};
use host::root::Root;
use host::sm::{self, PortSm, Sm};
use serde::Serialize;

/// A port in JSON, with the attributes of its subnet manager or the error of the query.
#[derive(Serialize)]
struct SmPortRow<'a> {
    device: &'a str,
    port: u8,
    #[serde(skip_serializing_if = "Option::is_none")]
    sm: Option<SmRow>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    standby: Vec<SmRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

#[derive(Serialize)]
struct SmRow {
    lid: u16,
    guid: String,
    activity_count: u32,
    priority: u8,
    state: u8,
    state_name: &'static str,
}

impl<'a> From<&'a PortSm> for SmPortRow<'a> {
    fn from(found: &'a PortSm) -> Self {
        let row = |sm: &Sm| SmRow {
            lid: sm.lid,
            guid: format!("0x{:016x}", sm.guid),
            activity_count: sm.activity_count,
            priority: sm.priority,
            state: sm.state,
            state_name: sm.state_name(),
        };
        let sm = found.sm.as_ref().ok().map(row);
        Self {
            device: &found.device,
            port: found.port,
            sm,
            standby: found.standby().iter().map(row).collect(),
            error: found.sm.as_ref().err().map(|error| error.text.as_str()),
        }
    }
}

/// Shows the subnet manager of every InfiniBand port, or the one with this LID. The status is not 0
/// if none replies.
///
/// # Errors
/// Returns an error if there is no InfiniBand port, or if no subnet manager replies. With `json`,
/// these cases are part of the output instead.
pub(crate) fn show(root: &Root, lid: Option<u16>, json: bool) -> Result<(String, u8)> {
    let all = match lid {
        Some(lid) => sm::query_lid(lid).map(|found| found.into_iter().collect()),
        None => root.subnet_managers(),
    };
    let all = all.map_err(Error::device)?;
    if json {
        let status = if all.iter().any(|port| port.sm.is_ok()) {
            0
        } else {
            super::PROBLEM
        };
        return Ok((
            super::json(&all.iter().map(SmPortRow::from).collect::<Vec<_>>())?,
            status,
        ));
    }
    if all.is_empty() {
        super::devices(root)?;
        return Err(Error::device(
            "this host has no InfiniBand port; RoCE and iWARP have no subnet manager",
        ));
    }
    if all.iter().all(|port| port.sm.is_err()) {
        return Err(Error::device(
            all.iter().map(line).collect::<Vec<_>>().join("; "),
        ));
    }
    Ok((all.iter().map(|port| line(port) + "\n").collect(), 0))
}

fn line(found: &PortSm) -> String {
    let port = format!("{}/{}", found.device, found.port);
    let text = |sm: &Sm, of: &str| {
        format!(
            "sminfo: sm lid {} sm guid 0x{:x}, activity count {} priority {} state {} {} (of {of})",
            sm.lid,
            sm.guid,
            sm.activity_count,
            sm.priority,
            sm.state,
            sm.state_name()
        )
    };
    match &found.sm {
        Ok(sm) => std::iter::once(sm)
            .chain(found.standby())
            .map(|sm| text(sm, &port))
            .collect::<Vec<_>>()
            .join("\n"),
        Err(_) if found.lacks_smi() => format!(
            "{port}: this port cannot query the subnet manager, because it has no queue pair 0 (virtual function or plane); `ribinfo stat` shows its LID"
        ),
        Err(error) => format!("{port}: {}", error.text),
    }
}
