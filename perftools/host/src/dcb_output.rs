//! The output of the command `dcb` for the network interfaces of the adapters of this host.

use serde::{Deserialize, Serialize};

use super::command::output;
use super::netdev;

/// The output of the command `dcb` for an interface. A field is `None` if the command is missing,
/// or the driver does not support it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DcbOutput {
    /// The interface.
    pub netdev: String,
    /// The output of `dcb -j pfc show`.
    pub pfc: Option<String>,
    /// The output of `dcb -j -N app show`.
    pub app: Option<String>,
}

/// Runs `dcb` for the network interfaces of the adapters of this host.
pub(crate) fn query() -> Vec<DcbOutput> {
    netdev::of_adapters()
        .into_iter()
        .map(query_netdev)
        .collect()
}

/// Runs `dcb` for an interface.
fn query_netdev(netdev: String) -> DcbOutput {
    DcbOutput {
        pfc: output("dcb", &["-j", "pfc", "show", "dev", &netdev]),
        app: output("dcb", &["-j", "-N", "app", "show", "dev", &netdev]),
        netdev,
    }
}
