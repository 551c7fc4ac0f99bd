//! The packet filter against what RDMA needs.

use super::finding::Finding;
use crate::args::options::PORT;
use crate::facts::Facts;
use crate::facts::filter::{Packet, Verdict, iptables, nft};
use crate::facts::probe::Firewall;
use crate::facts::roce::is_roce;

/// UDP port of RoCE v2.
const ROCE: u16 = 4791;

pub(super) fn check(facts: &Facts<'_>) -> Vec<Finding> {
    let firewall = &facts.probe.firewall;
    if firewall.nft.is_none() && firewall.iptables.is_none() && firewall.ip6tables.is_none() {
        let filtered = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"]
            .iter()
            .any(|path| facts.root.value(path).is_some());
        let nft = facts.root.exists("/sys/module/nf_tables");
        return vec![if filtered || nft {
            Finding::ok("there may be rules, which only root may read: nft list ruleset")
        } else {
            Finding::ok("no packet filter is loaded")
        }];
    }
    let mut findings = Vec::new();
    let software = facts.ports().any(|(device, port)| is_roce(device, port) && device.is_software());
    let hardware = facts.ports().any(|(device, port)| is_roce(device, port) && !device.is_software());
    if software {
        findings.push(judge(firewall, Packet { protocol: "udp", port: ROCE }, "RoCE v2 in software"));
    }
    if hardware {
        findings.push(Finding::ok(format!(
            "RoCE v2 of a card does not pass this host's packet filter; UDP port {ROCE} must be open on the way"
        )));
    }
    findings.push(judge(
        firewall,
        Packet { protocol: "tcp", port: PORT },
        "the control connection of rperf and ribinfo",
    ));
    findings
}

fn judge(firewall: &Firewall, packet: Packet, what: &str) -> Finding {
    let Packet { protocol, port } = packet;
    let by = [
        (
            firewall.nft.as_ref().map(|text| nft(text, packet)),
            format!(
                "nft insert rule inet filter input {protocol} dport {port} accept (firewall-cmd --permanent --add-port={port}/{protocol} && firewall-cmd --reload)"
            ),
        ),
        (
            firewall.iptables.as_ref().map(|text| iptables(text, packet)),
            format!("iptables -I INPUT -p {protocol} --dport {port} -j ACCEPT"),
        ),
        (
            firewall.ip6tables.as_ref().map(|text| iptables(text, packet)),
            format!("ip6tables -I INPUT -p {protocol} --dport {port} -j ACCEPT"),
        ),
    ];
    let on = format!("{protocol}/{port}");
    let mut some = None;
    for (verdict, mend) in by {
        match verdict {
            Some(Verdict::Drop(rule)) => {
                return Finding::fault(format!("{what} is kept out by: {rule}")).on(on).mend(mend);
            }
            Some(Verdict::Some(rule)) => some = Some(rule),
            _ => {}
        }
    }
    match some {
        Some(rule) => Finding::ok(format!("{what} comes in for some: {rule}")).on(on),
        None => Finding::ok(format!("{what} comes in")).on(on),
    }
}
