//! The RoCE versions of a port: the default of rdma_cm, and the types in its GID table.

use super::device::{Device, Port};

/// The name of version 1 in configfs.
pub const V1: &str = "IB/RoCE v1";
/// The name of version 2 in configfs.
pub const V2: &str = "RoCE v2";

/// Returns `true` if the port is a RoCE port.
pub fn is_roce(device: &Device, port: &Port) -> bool {
    port.is_ethernet() && !device.is_iwarp() && !device.is_usnic()
}

/// Returns the version that rdma_cm uses: the configured one, or else the kernel's default, which
/// is v2 if the GID table has v2 entries.
pub fn rdma_cm_mode(port: &Port) -> &str {
    match &port.roce_mode {
        Some(mode) => mode,
        None if has_gid_type(port, V2) => V2,
        None => V1,
    }
}

/// Returns `true` if the GID table has an entry of this type.
pub fn has_gid_type(port: &Port, kind: &str) -> bool {
    port.gids
        .iter()
        .any(|row| row.kind.as_deref() == Some(kind))
}
