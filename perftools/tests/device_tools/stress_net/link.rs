//! A link between two addresses of one device.
//!
//! What a host sends to itself does not pass a network: rxe delivers it in the driver, siw and
//! sockets use the loopback interface. Here the far end of the device's interface is a router in a
//! network namespace of its own, and rules for routing lead from one address to the other over it.
//! All packets then leave through the interface, where netem disturbs them in both directions.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use test_support::lab::{ip_addresses, netdev};
use test_support::process;

/// The version of IP, with the numbers of a host.
struct Family {
    /// Option of `ip`.
    option: &'static str,
    /// Length of the prefix of the lab's networks.
    prefix: u8,
    near: String,
    far: String,
    router: String,
}

/// The link of one device. The host is as before when it is dropped.
pub(crate) struct Link {
    interface: String,
    far_interface: String,
    namespace: String,
    families: Vec<Family>,
    /// First number of the routing tables and of the preferences of the rules.
    table: u32,
}

impl Link {
    /// Creates the network of a device, which disturbs nothing yet.
    pub(crate) fn new(device: &str) -> Self {
        let interface = netdev(device);
        let index = read(&format!("/sys/class/net/{interface}/ifindex"));
        let addresses = ip_addresses(&interface);
        let family = |option, prefix, is_wanted: fn(&std::net::IpAddr) -> bool| {
            let near = addresses.iter().find(|address| is_wanted(address));
            let near = near.expect("an address of the lab").to_string();
            let stem = near
                .strip_suffix('1')
                .expect("an address of the lab")
                .to_owned();
            Family {
                option,
                prefix,
                far: format!("{stem}2"),
                router: format!("{stem}9"),
                near,
            }
        };
        let link = Self {
            far_interface: far_end(&interface),
            namespace: format!("link-{interface}"),
            families: vec![
                family("-4", 24, std::net::IpAddr::is_ipv4),
                family("-6", 64, std::net::IpAddr::is_ipv6),
            ],
            table: 1000 + 10 * index.parse::<u32>().expect("a number"),
            interface,
        };
        link.connect();
        link
    }

    fn connect(&self) {
        let Self {
            interface,
            far_interface,
            namespace,
            table,
            ..
        } = self;
        shell(&format!(
            "ip netns add {namespace}
            ip link set {far_interface} netns {namespace}
            ip -n {namespace} link set lo up
            ip -n {namespace} link set {far_interface} up
            ip netns exec {namespace} sh -c 'cd /proc/sys/net
                echo 1 >ipv4/ip_forward; echo 1 >ipv6/conf/all/forwarding
                for i in all {far_interface}; do
                    echo 0 >ipv4/conf/$i/rp_filter; echo 0 >ipv4/conf/$i/send_redirects
                done'
            # The kernel sends no packets larger than the MTU, because SCTP fails on duplicates of
            # them (docs/drivers.md, fault 65).
            ip link set {interface} gso_max_segs 1 gso_max_size $(cat /sys/class/net/{interface}/mtu)
            cd /proc/sys/net/ipv4/conf
            echo 1 >{interface}/accept_local
            echo 0 >{interface}/rp_filter; echo 0 >all/rp_filter"
        ));
        for family in &self.families {
            let Family {
                option,
                prefix,
                near,
                far,
                router,
            } = family;
            let nodad = if *option == "-6" { "nodad" } else { "" };
            let (there, back) = (table, table + 1);
            shell(&format!(
                "ip {option} -n {namespace} addr add {router}/{prefix} dev {far_interface} {nodad}
                ip {option} addr add {far}/{prefix} dev {interface} {nodad}
                ip {option} route add {far} via {router} dev {interface} src {near} table {there}
                ip {option} route add {near} via {router} dev {interface} src {far} table {back}
                ip {option} rule add pref {back} iif lo from {far} to {near} lookup {back}
                ip {option} rule add pref {there} iif lo to {far} lookup {there}
                # The rules for local addresses come after these.
                ip {option} rule add pref 32000 lookup local 2>/dev/null || true
                ip {option} rule del pref 0 2>/dev/null || true"
            ));
        }
    }

    /// Returns the address of the server. Packets to it pass the network.
    pub(crate) fn server(&self) -> &str {
        &self.families[0].far
    }

    /// Returns the IPv6 address of the server, which `ribping` reaches with datagrams on RoCE.
    pub(crate) fn server_v6(&self) -> &str {
        &self.families[1].far
    }

    /// Returns the number of packets that have left through the interface.
    pub(crate) fn packets(&self) -> u64 {
        let path = format!("/sys/class/net/{}/statistics/tx_packets", self.interface);
        read(&path).parse().expect("a number")
    }

    /// Disturbs all packets with these arguments of netem. Packets in the queue are dropped.
    pub(crate) fn disturb(&self, netem: &str) {
        let interface = &self.interface;
        shell(&format!(
            "tc qdisc replace dev {interface} root netem limit 100000 {netem}"
        ));
    }

    /// Ends the disturbance.
    pub(crate) fn restore(&self) {
        let interface = &self.interface;
        shell(&format!(
            "tc qdisc del dev {interface} root 2>/dev/null || true"
        ));
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        let (interface, far_interface) = (&self.interface, &self.far_interface);
        let (namespace, there) = (&self.namespace, self.table);
        let back = there + 1;
        let mut script = format!(
            "tc qdisc del dev {interface} root
            ip link set {interface} gso_max_segs 65535 gso_max_size 65536\n"
        );
        for family in &self.families {
            let (option, far, prefix) = (family.option, &family.far, family.prefix);
            let _ = write!(
                script,
                "ip {option} rule add pref 0 lookup local
                ip {option} rule del pref 32000
                ip {option} rule del pref {there}; ip {option} rule del pref {back}
                ip {option} route flush table {there}; ip {option} route flush table {back}
                ip {option} addr del {far}/{prefix} dev {interface}\n"
            );
        }
        let _ = write!(
            script,
            "ip -n {namespace} link set {far_interface} netns 1
            ip link set {far_interface} up
            ip netns del {namespace}"
        );
        let _ = Command::new("sh").args(["-c", &script]).output();
    }
}

/// Returns the other end of a virtual Ethernet interface.
fn far_end(interface: &str) -> String {
    let peer = read(&format!("/sys/class/net/{interface}/iflink"));
    let entries = fs::read_dir("/sys/class/net").expect("network interfaces");
    let names = entries.map(|entry| entry.expect("an interface").file_name());
    let mut names = names.map(|name| name.to_string_lossy().into_owned());
    // `bonding_masters` is a file.
    let has_index = |name: &String| {
        fs::read_to_string(format!("/sys/class/net/{name}/ifindex"))
            .is_ok_and(|index| index.trim() == peer)
    };
    let is_far = |name: &String| name != interface && has_index(name);
    names.find(is_far).unwrap_or_else(|| {
        panic!("{interface} has no far end; help: run the test with `ci/lab run`, on one host")
    })
}

fn read(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    text.trim().to_owned()
}

fn shell(script: &str) {
    process::run(Command::new("sh").args(["-ec", script]));
}
