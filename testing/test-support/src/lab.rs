//! The devices that device tests run on.
//!
//! `ci/lab` names them in the variable `RDMA_LAB_DEVICES`. A test that passes must print
//! `device: NAME` for each device it ran on: `ci/guest/device-tests` counts these lines, and fails
//! if a device of the lab had no tests or if a test names no device. A test without a device, such
//! as the child process of another test, calls [`report_no_device`].

use std::fmt::Display;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;

/// Returns the names of the devices to test on.
///
/// # Panics
/// Panics if `RDMA_LAB_DEVICES` names no device: a device test without a device must fail.
pub fn device_names() -> Vec<String> {
    let variable = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices to test on: run by ci/lab");
    let names: Vec<String> = variable.split_whitespace().map(str::to_owned).collect();
    assert!(!names.is_empty(), "RDMA_LAB_DEVICES names no device");
    names
}

/// Returns the names of the devices to test on and reports each of them.
///
/// # Panics
/// Panics if `RDMA_LAB_DEVICES` names no device.
pub fn reported_device_names() -> Vec<String> {
    let names = device_names();
    names.iter().for_each(report_device);
    names
}

/// Opens the devices to test on. Does not report them: a test may skip some.
///
/// # Panics
/// Panics if `RDMA_LAB_DEVICES` names no device or a device cannot be opened.
#[cfg(feature = "verbs")]
pub fn devices() -> Vec<ibverbs::Context> {
    let open = |name: &String| {
        ibverbs::Device::by_name(name)
            .and_then(|device| device.open())
            .unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    device_names().iter().map(open).collect()
}

/// Reports that the running test uses this device. Details may follow the name after a space.
pub fn report_device(name: impl Display) {
    println!("device: {name}");
}

/// Reports that the running test uses no device. `reason` says why it is a device test.
pub fn report_no_device(reason: &str) {
    report_device(format_args!("none ({reason})"));
}

/// Returns `true` if the device is an iWARP adapter: its queue pairs need rdma_cm to connect.
///
/// # Panics
/// Panics if the device does not exist.
pub fn is_iwarp(device: &str) -> bool {
    fs::read_to_string(format!("/sys/class/infiniband/{device}/node_type"))
        .unwrap_or_else(|error| panic!("node type of {device}: {error}"))
        .starts_with('4')
}

/// Returns `true` if the running kernel has this version, such as `"7.3"`, or a newer one. For
/// behaviour of the drivers that has changed (`docs/drivers.md`).
///
/// # Panics
/// Panics if the version of the kernel cannot be read, or if `version` is not a version.
pub fn kernel_is_at_least(version: &str) -> bool {
    let release =
        fs::read_to_string("/proc/sys/kernel/osrelease").expect("the version of the kernel");
    parse_kernel_version(&release) >= parse_kernel_version(version)
}

/// Returns the first two numbers of a version such as `6.12.117+deb12-amd64`.
fn parse_kernel_version(version: &str) -> (u32, u32) {
    let mut numbers = version
        .split(|character: char| !character.is_ascii_digit())
        .map_while(|number| number.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => (major, minor),
        _ => panic!("expected a kernel version such as 6.12, not '{version}'"),
    }
}

/// Returns the network interface of the device's first port. On an InfiniBand link that is the one
/// of IPoIB, which belongs to the PCI function.
///
/// # Panics
/// Panics if the port has no network interface.
pub fn netdev(device: &str) -> String {
    let device = Path::new("/sys/class/infiniband").join(device);
    let of_port = fs::read_to_string(device.join("ports/1/gid_attrs/ndevs/0"));
    let of_port = of_port.ok().map(|name| name.trim().to_owned());
    let of_function = || {
        let mut all = fs::read_dir(device.join("device/net")).ok()?;
        all.next()?.ok()?.file_name().into_string().ok()
    };
    of_port
        .or_else(of_function)
        .unwrap_or_else(|| panic!("{} has no network interface", device.display()))
}

/// Returns the IP addresses of a network interface that are not link-local, IPv4 first.
///
/// # Panics
/// Panics if the addresses of this host cannot be listed.
#[cfg(feature = "net")]
pub fn ip_addresses(netdev: &str) -> Vec<std::net::IpAddr> {
    use std::net::IpAddr;

    let mut all: Vec<IpAddr> = nix::ifaddrs::getifaddrs()
        .expect("addresses of this host")
        .filter(|entry| entry.interface_name == netdev)
        .filter_map(|entry| entry.address)
        .filter_map(
            |address| match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
                (Some(v4), _) => Some(IpAddr::V4(v4.ip())),
                (_, Some(v6)) => Some(IpAddr::V6(v6.ip())),
                _ => None,
            },
        )
        .filter(|ip| !matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local()))
        .collect();
    all.sort();
    all
}

/// Returns the link-local IPv6 address of a network interface.
///
/// # Panics
/// Panics if the interface has none.
#[cfg(feature = "net")]
pub fn link_local_address(netdev: &str) -> std::net::Ipv6Addr {
    let found = nix::ifaddrs::getifaddrs()
        .expect("addresses of this host")
        .filter(|entry| entry.interface_name == netdev)
        .filter_map(|entry| Some(entry.address?.as_sockaddr_in6()?.ip()))
        .find(std::net::Ipv6Addr::is_unicast_link_local);
    found.unwrap_or_else(|| panic!("{netdev} has no link-local address"))
}

/// Files that change the link of the model of an adapter (`nic-model`), if this process has one.
const MODEL_LINK_DOWN: &str = "/dev/infiniband/nic-model/link-down";
const MODEL_LINK_UP: &str = "/dev/infiniband/nic-model/link-up";

/// Returns `true` if this process has a model of an adapter (`nic-model`).
pub fn is_model() -> bool {
    fs::read("/dev/infiniband/nic-model/objects").is_ok()
}

/// Makes a command run on the model of an mlx5 adapter (`nic-model`), as `mlx5_0`.
///
/// # Panics
/// Panics if the library of the model was not built into the directory of the test programs.
pub fn use_model(command: &mut Command) {
    let library = built_library("nic_model");
    command
        .env("RDMA_LAB_DEVICES", "mlx5_0")
        .env("NIC_MODEL", "mlx5_0")
        .env("NIC_MODEL_LINK", "ethernet")
        .env("LD_PRELOAD", library);
}

/// Returns the path of the library of a workspace crate, which `cargo build --lib` has built.
///
/// # Panics
/// Panics if it was not built into the directory of the test programs.
pub fn built_library(name: &str) -> PathBuf {
    let program = std::env::current_exe().expect("path of this program");
    let directory = program.parent().and_then(Path::parent);
    let path = directory
        .expect("a directory of programs")
        .join(format!("lib{name}.so"));
    assert!(
        path.exists(),
        "{}: build it with `cargo build --workspace --lib`",
        path.display()
    );
    path
}

/// A link that is down. It is up again when this is dropped.
#[derive(Debug)]
pub struct LinkDown {
    link: Link,
}

#[derive(Debug)]
enum Link {
    /// The link of the model in this process.
    Model,
    /// A network interface.
    Netdev(String),
    /// The IPoIB interface of the adapter of `ci/lab`.
    Function(String),
}

impl LinkDown {
    /// Takes the interface down, or the port behind an IPoIB interface: that of `mlx5_0`, which
    /// `ci/lab` provides with `--device mlx5`.
    ///
    /// # Panics
    /// Panics if the interface cannot be changed.
    pub fn new(netdev: &str) -> Self {
        const ARPHRD_INFINIBAND: &str = "32";
        if fs::read(MODEL_LINK_DOWN).is_ok() {
            return Self { link: Link::Model };
        }
        let kind = fs::read_to_string(format!("/sys/class/net/{netdev}/type"));
        if kind.is_ok_and(|kind| kind.trim() == ARPHRD_INFINIBAND) {
            order(netdev, "link-down", false);
            return Self {
                link: Link::Function(netdev.to_owned()),
            };
        }
        // By default the kernel removes the global IPv6 addresses of an interface that goes down,
        // and with them GIDs of the port.
        let keep = format!("/proc/sys/net/ipv6/conf/{netdev}/keep_addr_on_down");
        fs::write(&keep, "1").unwrap_or_else(|error| panic!("{keep}: {error}"));
        set_link(netdev, "down");
        Self {
            link: Link::Netdev(netdev.to_owned()),
        }
    }
}

impl Drop for LinkDown {
    fn drop(&mut self) {
        match &self.link {
            Link::Model => drop(fs::read(MODEL_LINK_UP).expect("the model")),
            Link::Netdev(netdev) => set_link(netdev, "up"),
            Link::Function(netdev) => order(netdev, "repair", true),
        }
    }
}

/// Orders a change of the link, and waits until the driver of the interface's device reports it.
fn order(netdev: &str, line: &str, is_active: bool) {
    let shared = std::env::var_os("RDMA_LAB_SHARED").expect("a directory of the lab");
    let orders = Path::new(&shared).join("function.control");
    let file = fs::OpenOptions::new().append(true).open(&orders);
    let mut file = file.unwrap_or_else(|error| panic!("{}: {error}", orders.display()));
    writeln!(file, "{line}").expect("an order");
    let devices = format!("/sys/class/net/{netdev}/device/infiniband");
    let mut devices = fs::read_dir(&devices).unwrap_or_else(|error| panic!("{devices}: {error}"));
    let device = devices.next().expect("a device").expect("a device").path();
    let has_changed = || {
        let state = fs::read_to_string(device.join("ports/1/state")).expect("state of the port");
        state.contains("ACTIVE") == is_active
    };
    assert!(
        process::wait_until(Duration::from_secs(10), has_changed),
        "the port did not change with {line}"
    );
}

fn set_link(netdev: &str, state: &str) {
    process::run_line(&format!("ip link set dev {netdev} {state}"));
}
