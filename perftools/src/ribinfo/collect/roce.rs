//! RoCE v1 or v2: what rdma_cm prefers at a port, and what its GID table has.

use super::device::{Device, Port};

/// configfs' name of version 1.
pub const V1: &str = "IB/RoCE v1";
/// configfs' name of version 2.
pub const V2: &str = "RoCE v2";

/// Whether a port speaks RoCE.
pub fn is_roce(device: &Device, port: &Port) -> bool {
    port.is_ethernet() && !device.is_iwarp()
}

/// What rdma_cm takes, set or by the kernel's own choice: v2 where the table has it.
pub fn mode(port: &Port) -> &str {
    match &port.roce_mode {
        Some(mode) => mode,
        None if has(port, V2) => V2,
        None => V1,
    }
}

/// Whether the GID table has this kind.
pub fn has(port: &Port, kind: &str) -> bool {
    port.gids
        .iter()
        .any(|row| row.kind.as_deref() == Some(kind))
}
