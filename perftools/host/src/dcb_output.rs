//! The output of the command `dcb` for the network interfaces of the adapters of this host.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::command::output;

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
pub fn query() -> Vec<DcbOutput> {
    let devices = entries(Path::new("/sys/class/infiniband"));
    let netdevs = devices
        .iter()
        .flat_map(|device| entries(&device.join("device/net")));
    netdevs.filter_map(|path| query_netdev(&path)).collect()
}

/// Runs `dcb` for an interface. `path` is its directory in sysfs.
fn query_netdev(path: &Path) -> Option<DcbOutput> {
    let netdev = path.file_name()?.to_str()?;
    Some(DcbOutput {
        netdev: netdev.to_owned(),
        pfc: output("dcb", &["-j", "pfc", "show", "dev", netdev]),
        app: output("dcb", &["-j", "-N", "app", "show", "dev", netdev]),
    })
}

/// Returns the paths in a directory, sorted.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}
