//! What packets carry besides data, and which links let it.

use super::LinkType;
use super::device::OpenedDevice;
use crate::common::error::{Error, Result};
use crate::rperf::spec::modes::Cm;
use crate::rperf::spec::path::PathSettings;

/// Whether the port can do what its end was told of packets.
pub(super) fn check_path(opened: &OpenedDevice, own: PathSettings, pkey_index: u16) -> Result<()> {
    let device = opened.context.device_name();
    let pkeys = opened.port.pkey_tbl_len;
    if pkey_index > 0 && pkey_index >= pkeys {
        return Err(Error::limit(format!(
            "partition key number {pkey_index}: port {} of {device} has {pkeys}, so give --pkey-index less than {pkeys}",
            opened.port_num
        )));
    }
    let lacks = |what: &str| {
        Err(Error::limit(format!(
            "{what} is InfiniBand's, and {device} is {}: leave it away",
            opened.link
        )))
    };
    let bits = own.src_path_bits.unwrap_or(0);
    match opened.link {
        LinkType::InfiniBand if u32::from(bits) >= 1 << opened.port.lmc.min(7) => {
            Err(Error::limit(format!(
                "source path bits of {bits}: port {} of {device} has LMC {}, so give --src-path-bits (-sp) less than {}",
                opened.port_num,
                opened.port.lmc,
                1 << opened.port.lmc.min(7)
            )))
        }
        LinkType::InfiniBand => Ok(()),
        _ if own.static_rate.is_some() => {
            lacks("a static rate (--static-rate, -sr; --rate-limit is rperf's own)")
        }
        _ if bits > 0 => lacks("a LID with source path bits (--src-path-bits, -sp)"),
        _ => Ok(()),
    }
}

/// Whether rdma_cm connects a port of this link; what `marks` packets it does not do.
pub(super) fn uses_cm(link: LinkType, asked: Cm, marks: bool, device: &str) -> Result<bool> {
    match (link, asked) {
        (LinkType::Iwarp, _) if marks => Err(Error::limit(format!(
            "service level, traffic class, partition key, static rate and path bits: iWARP packets, as those of {device}, have none of these"
        ))),
        (LinkType::Iwarp, Cm::Off) => Err(Error::limit(format!(
            "{device} is iWARP, which only rdma_cm connects: leave --use-cm off (-cm0) away"
        ))),
        (LinkType::Iwarp, _) | (_, Cm::On) => Ok(true),
        _ => Ok(false),
    }
}
