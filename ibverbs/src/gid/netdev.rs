//! The network interface behind a port, and the port behind a network interface.

use std::path::Path;

use crate::device::{Context, Device};
use crate::error::{Error, Result};
use crate::kind::ErrorKind;

const SYSFS: &str = "/sys/class/infiniband";

impl Context {
    /// The network interface behind a RoCE or iWARP port, or the IPoIB interface of an InfiniBand
    /// one; `None` where the kernel does not say.
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
    /// The device and the port (from 1) that a network interface such as `eth0` belongs to.
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
    /// [`ErrorKind::NotFound`] names the interfaces that have a device.
    pub fn by_netdev(netdev: &str) -> Result<(Self, u8)> {
        let mut there = Vec::new();
        for device in Self::list()? {
            for port_num in ports(Path::new(SYSFS), device.name()) {
                let names = in_sysfs(Path::new(SYSFS), device.name(), port_num);
                if names.iter().any(|name| name == netdev) {
                    return Ok((device, port_num));
                }
                there.extend(
                    names
                        .into_iter()
                        .map(|name| format!("{name} ({} port {port_num})", device.name())),
                );
            }
        }
        let what = format!("no RDMA device has the network interface {netdev:?}");
        let hint = if there.is_empty() {
            format!("a software one: `rdma link add rxe0 type rxe netdev {netdev}`")
        } else {
            format!("there are: {}", there.join(", "))
        };
        Err(Error::new(ErrorKind::NotFound, "open", what).with_hint(hint))
    }
}

/// The ports that the kernel shows of a device.
fn ports(root: &Path, device: &str) -> Vec<u8> {
    let mut ports: Vec<u8> = entries(&root.join(device).join("ports"))
        .iter()
        .filter_map(|n| n.parse().ok())
        .collect();
    ports.sort_unstable();
    ports
}

/// The interfaces that the kernel shows of a port: those of its GIDs in their order, else what the
/// driver says.
fn in_sysfs(root: &Path, device: &str, port_num: u8) -> Vec<String> {
    let device = root.join(device);
    let of_gids = device.join(format!("ports/{port_num}/gid_attrs/ndevs"));
    let mut indices: Vec<u32> = entries(&of_gids)
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    indices.sort_unstable();
    let mut names: Vec<String> = Vec::new();
    for name in indices
        .iter()
        .filter_map(|index| read(&of_gids.join(index.to_string())))
    {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        names.extend(read(&device.join("parent")));
    }
    if names.is_empty() {
        names = of_function(&device.join("device/net"), port_num);
    }
    names
}

/// The interfaces of a PCI function: those that say that they are of this port, or all when none
/// says so.
fn of_function(directory: &Path, port_num: u8) -> Vec<String> {
    let mut all = entries(directory);
    all.sort_unstable();
    let of_port = |name: &&String| {
        let port =
            read(&directory.join(name).join("dev_port")).and_then(|text| text.parse::<u8>().ok());
        port.is_some_and(|port| port.checked_add(1) == Some(port_num))
    };
    let chosen: Vec<String> = all.iter().filter(of_port).cloned().collect();
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

/// The line of a file; `None` where it cannot be read (an empty place of the GID table), or says
/// nothing.
fn read(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    /// A made-up /sys/class/infiniband, gone at the end.
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
    #[cfg_attr(miri, ignore = "files")]
    fn the_interfaces_of_the_gids_come_first_and_in_order() {
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
    #[cfg_attr(miri, ignore = "files")]
    fn a_function_with_two_ports_says_which_interface_is_of_which() {
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
