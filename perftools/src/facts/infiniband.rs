//! The InfiniBand ports of this host, which management datagrams can be sent from.

use ibumad::{Ca, PortAttr};

/// All of them; adapters that say nothing of themselves are left out.
///
/// # Errors
/// There is no list of adapters.
pub(super) fn ports() -> ibumad::Result<Vec<PortAttr>> {
    let cas = Ca::names()?
        .into_iter()
        .filter_map(|name| Ca::by_name(&name).ok());
    Ok(cas
        .flat_map(|ca| ca.ports)
        .filter(|port| port.link_layer.is_infiniband())
        .collect())
}
