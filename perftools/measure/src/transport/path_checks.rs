//! Checks of path settings (partition key, static rate) and of rdma_cm against the link.

use base::error::{Error, Result};

use super::LinkType;
use super::device::OpenedDevice;
use crate::spec::modes::Cm;
use crate::spec::path::PathSettings;

/// Checks that the port supports the path settings of its end.
pub(super) fn check_path(
    opened: &OpenedDevice,
    settings: PathSettings,
    pkey_index: u16,
) -> Result<()> {
    let device = opened.context.device_name();
    let pkeys = opened.port.pkey_tbl_len;
    if pkey_index > 0 && pkey_index >= pkeys {
        return Err(Error::limit(format!(
            "partition key index {pkey_index}: port {} of {device} has {pkeys} partition keys",
            opened.port_num
        ))
        .with_help(format!("set --pkey-index below {pkeys}")));
    }
    if settings.static_rate.is_some() && opened.link != LinkType::InfiniBand {
        return Err(Error::limit(format!(
            "static rate: only InfiniBand supports this, but {device} is {}",
            opened.link
        ))
        .with_help("omit --static-rate (-sr); --rate-limit works on every link"));
    }
    Ok(())
}

/// Returns `true` if rdma_cm connects the queue pairs on this link. `marks_packets` is `true` if
/// the test sets fields of the packet headers, which rdma_cm does not support.
pub(super) fn uses_cm(
    link: LinkType,
    requested: Cm,
    marks_packets: bool,
    device: &str,
) -> Result<bool> {
    match (link, requested) {
        (LinkType::Iwarp, _) if marks_packets => Err(Error::limit(format!(
            "{device} is iWARP, whose packets have no service level, traffic class, flow label, partition key or static rate"
        ))
        .with_help("omit the options that set them")),
        (LinkType::Iwarp, Cm::Off) => Err(Error::limit(format!(
            "{device} is iWARP, which can only be connected by rdma_cm"
        ))
        .with_help("omit --use-cm off (-cm0)")),
        (LinkType::Efa, Cm::On) => Err(Error::limit(format!(
            "{device} is EFA, which rdma_cm cannot connect"
        ))
        .with_help("omit --use-cm on (-cm1)")),
        (LinkType::Iwarp, _) | (_, Cm::On) => Ok(true),
        _ => Ok(false),
    }
}
