//! Mapping between ports and network interfaces.

use std::path::Path;

use crate::device::{Context, Device, not_found};
use crate::error::Result;

const SYSFS: &str = "/sys/class/infiniband";

impl Context {
    /// Returns the network interface of a RoCE or iWARP port, or the IPoIB interface of an
    /// InfiniBand port; `None` if the kernel does not report one.
    pub fn netdev(&self, port_num: u8) -> Option<String> {
        let named = self
            .gids(port_num)
            .ok()?
            .iter()
            .find_map(super::table::GidEntry::netdev);
        named.or_else(|| {
            in_sysfs(Path::new(SYSFS), self.device_name(), port_num)
                .into_iter()
                .next()
        })
    }
}

impl Device {
    /// Finds the device and port (numbered from 1) of a network interface such as `eth0`.
    ///
    /// # Example
    /// ```no_run
    /// let (device, port_num) = ibverbs::Device::by_netdev("eth0")?;
    /// println!(
    ///     "{} port {port_num}: {}",
    ///     device.name(),
    ///     device.open()?.query_port(port_num)?.rate()
    /// );
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if no device has this interface; the
    /// message lists the interfaces that have one.
    pub fn by_netdev(netdev: &str) -> Result<(Self, u8)> {
        let mut available = Vec::new();
        for device in Self::list()? {
            for port_num in ports(Path::new(SYSFS), device.name()) {
                let names = in_sysfs(Path::new(SYSFS), device.name(), port_num);
                if names.iter().any(|name| name == netdev) {
                    return Ok((device, port_num));
                }
                available.extend(
                    names
                        .into_iter()
                        .map(|name| format!("{name} ({} port {port_num})", device.name())),
                );
            }
        }
        let what = format!("no RDMA device has the network interface `{netdev}`");
        Err(not_found(&what, &available, netdev))
    }
}

/// Returns the ports of a device that sysfs lists.
fn ports(root: &Path, device: &str) -> Vec<u8> {
    let mut ports: Vec<u8> = entries(&root.join(device).join("ports"))
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    ports.sort_unstable();
    ports
}

/// Returns the interfaces of a port according to sysfs: those of its GIDs in index order, otherwise
/// those that the driver reports.
fn in_sysfs(root: &Path, device: &str, port_num: u8) -> Vec<String> {
    let device = root.join(device);
    let gid_ndevs = device.join(format!("ports/{port_num}/gid_attrs/ndevs"));
    let mut indices: Vec<u32> = entries(&gid_ndevs)
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    indices.sort_unstable();
    let mut names: Vec<String> = Vec::new();
    for name in indices
        .iter()
        .filter_map(|index| read(&gid_ndevs.join(index.to_string())))
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        names.extend(read(&device.join("parent")));
    }
    if names.is_empty() {
        names = pci_function_netdevs(&device.join("device/net"), port_num);
    }
    names
}

/// Returns the interfaces of a PCI function that belong to this port, or all of them if none has a
/// port number.
fn pci_function_netdevs(directory: &Path, port_num: u8) -> Vec<String> {
    let mut all = entries(directory);
    all.sort_unstable();
    let is_of_port = |name: &&String| {
        let port =
            read(&directory.join(name).join("dev_port")).and_then(|text| text.parse::<u8>().ok());
        port.is_some_and(|port| port.checked_add(1) == Some(port_num))
    };
    let chosen: Vec<String> = all.iter().filter(is_of_port).cloned().collect();
    if chosen.is_empty() { all } else { chosen }
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    entries
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect()
}

/// Reads a one-line file. Returns `None` if the file is empty or cannot be read, as for an empty
/// entry of the GID table.
fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A fake /sys/class/infiniband, removed on drop.
    struct Sysfs(PathBuf);

    impl Sysfs {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root =
                std::env::temp_dir().join(format!("ibverbs-netdev-{}-{name}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().expect("within the root")).expect("directory");
                fs::write(path, text).expect("file");
            }
            Self(root)
        }
    }

    impl Drop for Sysfs {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "accesses files")]
    fn gid_interfaces_come_first_in_index_order() {
        let sysfs = Sysfs::new(
            "gids",
            &[
                ("d0/ports/1/gid_attrs/ndevs/0", "eth0\n"),
                ("d0/ports/1/gid_attrs/ndevs/1", "eth0\n"),
                ("d0/ports/1/gid_attrs/ndevs/10", "eth0.7\n"),
                ("d0/ports/1/gid_attrs/ndevs/2", ""),
                ("d0/ports/2/state", "4: ACTIVE\n"),
                ("d0/parent", "other\n"),
            ],
        );
        assert_eq!(ports(&sysfs.0, "d0"), [1, 2]);
        assert_eq!(in_sysfs(&sysfs.0, "d0", 1), ["eth0", "eth0.7"]);
        assert_eq!(in_sysfs(&sysfs.0, "d0", 2), ["other"]);
        assert_eq!(in_sysfs(&sysfs.0, "none", 1), Vec::<String>::new());
    }

    #[test]
    #[cfg_attr(miri, ignore = "accesses files")]
    fn dev_port_selects_the_interface_of_a_port() {
        let sysfs = Sysfs::new(
            "function",
            &[
                ("d0/device/net/ib1/dev_port", "1\n"),
                ("d0/device/net/ib0/dev_port", "0\n"),
                ("d1/device/net/b/mtu", "1500\n"),
                ("d1/device/net/a/mtu", "1500\n"),
            ],
        );
        assert_eq!(in_sysfs(&sysfs.0, "d0", 1), ["ib0"]);
        assert_eq!(in_sysfs(&sysfs.0, "d0", 2), ["ib1"]);
        assert_eq!(in_sysfs(&sysfs.0, "d1", 1), ["a", "b"]);
    }
}
