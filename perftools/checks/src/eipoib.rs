//! eIPoIB: Ethernet interfaces on top of IPoIB.

use host::HostFacts;
use host::eipoib::{Interface, OPENIB_CONF};

use super::finding::Finding;
use super::spelling;

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let enabled = facts.eipoib.is_enabled;
    let mut findings = spelling::check(facts, OPENIB_CONF);
    let Some(interfaces) = &facts.eipoib.interfaces else {
        findings.extend(enabled.then(|| {
            Finding::fault(format!(
                "{OPENIB_CONF} enables eIPoIB, but module eth_ipoib is not loaded"
            ))
            .with_remedy("when nothing uses RDMA: /etc/init.d/openibd restart; modprobe eth_ipoib")
        }));
        return findings;
    };
    if !enabled {
        findings.push(
            Finding::warning("eIPoIB is in use, but not enabled after a reboot")
                .with_remedy(format!("echo LOAD_EIPOIB=yes >> {OPENIB_CONF}")),
        );
    }
    if facts.eipoib.is_enhanced {
        findings.push(Finding::fault("ib_ipoib is in Enhanced mode, which eIPoIB does not support").with_remedy(
            "echo 'options ib_ipoib ipoib_enhanced=0' > /etc/modprobe.d/ib_ipoib.conf; when nothing uses RDMA: /etc/init.d/openibd restart",
        ));
    }
    for interface in interfaces {
        let found = check_interface(facts, interface).into_iter();
        findings.extend(found.map(|finding| finding.on(&interface.name)));
    }
    findings
}

/// Returns a fault if packets of the Ethernet interface do not fit into those of IPoIB.
fn check_mtu(facts: &HostFacts, interface: &str, port: &str) -> Option<Finding> {
    let mtu = |name| facts.netdev(name)?.mtu;
    let (ethernet, ipoib) = (mtu(interface)?, mtu(port)?);
    (ethernet > ipoib).then(|| {
        Finding::fault(format!(
            "MTU {ethernet} bytes, but {port} below it has only {ipoib} bytes: larger packets are lost"
        ))
        .with_remedy(format!("ip link set {interface} mtu {ipoib}"))
    })
}

fn check_interface(facts: &HostFacts, interface: &Interface) -> Vec<Finding> {
    let Interface {
        name: interface,
        port,
        slaves,
    } = interface;
    if slaves.is_empty() {
        return vec![
            Finding::warning(format!("on {port} without slaves: no traffic passes")).with_remedy(
                format!("echo '+{port}.1 MAC' > /sys/class/net/{interface}/eth/vifs"),
            ),
        ];
    }
    let mut findings: Vec<Finding> = check_mtu(facts, interface, port).into_iter().collect();
    let names: Vec<_> = slaves
        .iter()
        .map(|slave| {
            format!(
                "{} {}{}",
                slave.name,
                slave.mac,
                slave
                    .vlan
                    .map_or_else(String::new, |vlan| format!(" VLAN {vlan}"))
            )
        })
        .collect();
    findings.push(Finding::ok(format!(
        "on {port}, slaves: {}",
        names.join(", ")
    )));
    for (slave, vlan) in slaves.iter().filter_map(|slave| Some((slave, slave.vlan?))) {
        // VLAN tag 3 corresponds to partition key 0x8003.
        let pkey = 0x8000 | vlan;
        if !facts
            .ports()
            .any(|(_, port)| port.pkeys.iter().any(|key| key | 0x8000 == pkey))
        {
            findings.push(
                Finding::fault(format!(
                    "VLAN {vlan} of {} needs partition 0x{pkey:04x}, but no port is a member of it",
                    slave.name
                ))
                .with_remedy(format!(
                    "add to partitions.conf: vlan{vlan}=0x{pkey:04x}, ipoib : ALL=full; then systemctl restart opensm"
                )),
            );
        }
    }
    findings
}
