//! The packet filter against what RDMA needs.

use super::finding::Finding;
use crate::common::protocol::DEFAULT_PORT;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::filter::{Packet, Verdict, iptables, nft};
use crate::ribinfo::collect::probe::Firewall;
use crate::ribinfo::collect::roce::is_roce;

/// UDP port of RoCE v2.
const ROCE: u16 = 4791;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
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
    let software = facts
        .ports()
        .any(|(device, port)| is_roce(device, port) && device.is_software());
    let hardware = facts
        .ports()
        .any(|(device, port)| is_roce(device, port) && !device.is_software());
    if software {
        findings.push(judge(
            firewall,
            Packet {
                protocol: "udp",
                port: ROCE,
            },
            "RoCE v2 in software",
        ));
    }
    if hardware {
        findings.push(Finding::ok(format!(
            "RoCE v2 of a card does not pass this host's packet filter; UDP port {ROCE} must be open on the way"
        )));
    }
    findings.push(judge(
        firewall,
        Packet {
            protocol: "tcp",
            port: DEFAULT_PORT,
        },
        "the control connection of rperf and ribinfo",
    ));
    findings
}

fn judge(firewall: &Firewall, packet: Packet, what: &str) -> Finding {
    let Packet { protocol, port } = packet;
    let on = format!("{protocol}/{port}");
    let mut some = None;
    for (text, filter) in [
        (&firewall.nft, Filter::Nft),
        (&firewall.iptables, Filter::V4),
        (&firewall.ip6tables, Filter::V6),
    ] {
        let Some(text) = text else { continue };
        match filter.verdict(text, packet) {
            Verdict::Drop { rule, chain } => {
                return Finding::fault(format!("{what} is kept out by: {rule}"))
                    .on(on)
                    .mend(filter.open(text, packet, &chain));
            }
            Verdict::Some(rule) => some = Some(rule),
            Verdict::Accept => {}
        }
    }
    match some {
        Some(rule) => Finding::ok(format!("{what} comes in for some: {rule}")).on(on),
        None => Finding::ok(format!("{what} comes in")).on(on),
    }
}

/// Whose rules they are.
#[derive(Clone, Copy)]
enum Filter {
    Nft,
    V4,
    V6,
}

impl Filter {
    fn verdict(self, text: &str, packet: Packet) -> Verdict {
        match self {
            Self::Nft => nft(text, packet),
            Self::V4 | Self::V6 => iptables(text, packet),
        }
    }

    /// The command that lets a packet in; by who manages the rules, if that can be seen.
    fn open(self, text: &str, Packet { protocol, port }: Packet, chain: &str) -> String {
        if text.contains("firewalld") {
            return format!(
                "firewall-cmd --permanent --add-port={port}/{protocol} && firewall-cmd --reload"
            );
        }
        if text.contains("ufw-before-input") {
            return format!("ufw allow {port}/{protocol}");
        }
        match self {
            Self::Nft => format!("nft insert rule {chain} {protocol} dport {port} accept"),
            Self::V4 => format!("iptables -I INPUT -p {protocol} --dport {port} -j ACCEPT"),
            Self::V6 => format!("ip6tables -I INPUT -p {protocol} --dport {port} -j ACCEPT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_is_that_of_who_manages_the_rules() {
        let rules = |table: &str, more: &str| {
            format!(
                "table inet {table} {{\nchain in {{\ntype filter hook input priority 0; policy drop;\n{more}}}\n}}\n"
            )
        };
        let mends = |text: String| {
            let firewall = Firewall {
                nft: Some(text),
                ..Firewall::default()
            };
            judge(
                &firewall,
                Packet {
                    protocol: "udp",
                    port: ROCE,
                },
                "RoCE",
            )
            .remedy
            .unwrap()
        };
        assert_eq!(
            mends(rules("own", "")),
            "nft insert rule inet own in udp dport 4791 accept"
        );
        assert!(
            mends(rules("firewalld", ""))
                .starts_with("firewall-cmd --permanent --add-port=4791/udp")
        );
        assert_eq!(
            mends(rules("filter", "jump ufw-before-input\n")),
            "ufw allow 4791/udp"
        );
    }
}
