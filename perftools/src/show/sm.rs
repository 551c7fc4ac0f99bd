//! `ribinfo sm`, as sminfo, for every InfiniBand port.

use crate::error::{Error, Result};
use crate::facts::root::Root;
use crate::facts::sm::PortSm;

/// The subnet manager of every InfiniBand port.
///
/// # Errors
/// There is no InfiniBand port, or none of them has a subnet manager that answers.
pub fn show(root: &Root, json: bool) -> Result<String> {
    let all = root.sms().map_err(Error::device)?;
    if json {
        return super::json(&all);
    }
    if all.is_empty() {
        return Err(Error::device("no InfiniBand port here; RoCE and iWARP have no subnet manager"));
    }
    if all.iter().all(|port| port.sm.is_err()) {
        return Err(Error::device(all.iter().map(line).collect::<Vec<_>>().join("; ")));
    }
    Ok(all.iter().map(|port| line(port) + "\n").collect())
}

fn line(found: &PortSm) -> String {
    let by = format!("{}/{}", found.device, found.port);
    match &found.sm {
        Ok(sm) => format!(
            "sminfo: sm lid {} sm guid 0x{:x}, activity count {} priority {} state {} {} (of {by})",
            sm.lid,
            sm.guid,
            sm.activity_count,
            sm.priority,
            sm.state,
            sm.state_name()
        ),
        Err(error) => format!("{by}: {error}"),
    }
}
