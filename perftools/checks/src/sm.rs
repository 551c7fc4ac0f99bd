//! The subnet manager of each active InfiniBand port.

use host::HostFacts;
use host::device::{Device, Port};
use host::sm::{PortSm, START, Sm};

use super::finding::Finding;

/// The remedy for a missing fabric manager of Omni-Path.
pub(super) const START_OPA: &str =
    "start the fabric manager: systemctl enable --now opafm (on one host of the fabric)";
/// State of the master.
const MASTER: u8 = 3;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let active = facts
        .ports()
        .filter(|(_, port)| port.is_active() && port.is_infiniband());
    active
        .filter_map(|(device, port)| {
            let found = facts
                .probe
                .sms
                .iter()
                .find(|sm| sm.device == device.name && u32::from(sm.port) == port.port);
            Some(check_port(device, port, found)?.on(format!("{}/{}", device.name, port.port)))
        })
        .collect()
}

fn check_port(device: &Device, port: &Port, found: Option<&PortSm>) -> Option<Finding> {
    let start = if device.is_omni_path() {
        START_OPA
    } else {
        START
    };
    if port.lid == 0 || port.sm_lid == 0 {
        let missing = if port.lid == 0 { "LID 0" } else { "SM LID 0" };
        return Some(
            Finding::fault(format!(
                "{missing}: the port is ACTIVE, but no subnet manager has configured it"
            ))
            .with_remedy(start),
        );
    }
    let found = found?;
    Some(match &found.sm {
        Ok(sm) if sm.state == MASTER => {
            Finding::ok(format!("{}; {}", describe(sm), describe_standby(found)))
        }
        Ok(sm) => Finding::fault(format!(
            "{}: no subnet manager is the master of this port",
            describe(sm)
        ))
        .with_remedy(start),
        Err(error) if error.is_denied() => Finding::unknown(format!(
            "the subnet manager at LID {} can only be queried by root",
            port.sm_lid
        ))
        .with_remedy("sudo ribinfo check sm"),
        // The port is configured, which its LIDs show.
        Err(_) if found.lacks_smi() => Finding::ok(format!(
            "LID {}, subnet manager at LID {}; this port cannot query it, because it has no queue pair 0 (virtual function or plane)",
            port.lid, port.sm_lid
        )),
        // The fabric manager answers datagrams of Omni-Path only (`OPA_MGMT_BASE_VERSION`).
        Err(_) if device.is_omni_path() => Finding::ok(format!(
            "LID {}, fabric manager at LID {}; opainfo shows its state",
            port.lid, port.sm_lid
        )),
        Err(error) => {
            let text = &error.text;
            let (text, _) = text.split_once("; ").unwrap_or((text, ""));
            Finding::fault(text).with_remedy(start)
        }
    })
}

fn describe(sm: &Sm) -> String {
    format!(
        "subnet manager at LID {}, GUID 0x{:016x}, priority {}, {}",
        sm.lid,
        sm.guid,
        sm.priority,
        sm.state_name().trim_start_matches("SMINFO_")
    )
}

fn describe_standby(found: &PortSm) -> String {
    match &found.standby {
        Some(Err(error)) if error.contains("too many records") => {
            "several standby subnet managers".to_owned()
        }
        Some(Err(_)) | None => "standby subnet managers unknown".to_owned(),
        Some(Ok(standby)) if standby.is_empty() => "no standby subnet manager".to_owned(),
        Some(Ok(standby)) => {
            let all = standby
                .iter()
                .map(|sm| format!("LID {} with priority {}", sm.lid, sm.priority));
            format!("standby: {}", all.collect::<Vec<_>>().join(", "))
        }
    }
}
