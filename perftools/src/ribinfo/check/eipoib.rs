//! eIPoIB: Ethernet interfaces over IPoIB.

use super::finding::Finding;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::eipoib::{Slave, slave};

const INTERFACES: &str = "/sys/class/net/eth_ipoib_interfaces";
const CONF: &str = "/etc/infiniband/openib.conf";
const ENHANCED: &str = "/sys/module/ib_ipoib/parameters/ipoib_enhanced";

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    // A shell reads it: the last one holds.
    let conf = facts.root.text(CONF).unwrap_or_default();
    let wanted = conf
        .lines()
        .rev()
        .find_map(|line| line.trim().strip_prefix("LOAD_EIPOIB="));
    let wanted = wanted.is_some_and(|value| value.trim_matches(['"', '\'']) == "yes");
    let Some(text) = facts.root.text(INTERFACES) else {
        if !wanted {
            return Vec::new();
        }
        return vec![
            Finding::fault(format!("{CONF} wants it, but eth_ipoib is not loaded"))
                .mend("/etc/init.d/openibd restart; modprobe eth_ipoib"),
        ];
    };
    let mut findings = Vec::new();
    if !wanted {
        findings.push(
            Finding::warning("it is in use, but will not be after a reboot")
                .mend(format!("echo LOAD_EIPOIB=yes >> {CONF}")),
        );
    }
    if facts.root.number::<u32>(ENHANCED) == Some(1) {
        findings.push(Finding::fault("ib_ipoib is in Enhanced mode, which eIPoIB cannot use").mend(
            "echo 'options ib_ipoib ipoib_enhanced=0' > /etc/modprobe.d/ib_ipoib.conf; /etc/init.d/openibd restart",
        ));
    }
    for (interface, port) in text
        .lines()
        .filter_map(|line| line.split_once(" over IB port: "))
    {
        findings.extend(
            judge(facts, interface.trim(), port.trim())
                .into_iter()
                .map(|finding| finding.on(interface.trim())),
        );
    }
    findings
}

fn judge(facts: &HostFacts<'_>, interface: &str, port: &str) -> Vec<Finding> {
    let vifs = facts
        .root
        .text(&format!("/sys/class/net/{interface}/eth/vifs"))
        .unwrap_or_default();
    let slaves: Vec<Slave> = vifs.lines().filter_map(slave).collect();
    if slaves.is_empty() {
        return vec![
            Finding::warning(format!("over {port}, without slaves: nothing passes")).mend(format!(
                "echo '+{port}.1 MAC' > /sys/class/net/{interface}/eth/vifs"
            )),
        ];
    }
    let mut findings = Vec::new();
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
    findings.push(Finding::ok(format!("over {port}: {}", names.join(", "))));
    for (slave, vlan) in slaves.iter().filter_map(|slave| Some((slave, slave.vlan?))) {
        // Tag 3 is partition 0x8003.
        let pkey = 0x8000 | vlan;
        if !facts
            .ports()
            .any(|(_, port)| port.pkeys.iter().any(|key| key | 0x8000 == pkey))
        {
            findings.push(
                Finding::fault(format!(
                    "VLAN {vlan} of {} wants partition 0x{pkey:04x}, which no port is a member of",
                    slave.name
                ))
                .mend(format!(
                    "in partitions.conf: vlan{vlan}=0x{pkey:04x}, ipoib : ALL=full; then systemctl restart opensm"
                )),
            );
        }
    }
    findings
}
