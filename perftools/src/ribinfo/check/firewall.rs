//! Packet filter rules for RoCE v2 and for the control connection.

use super::finding::Finding;
use crate::common::protocol::DEFAULT_PORT;
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::filter::{Packet, Verdict, iptables, nft};
use crate::ribinfo::collect::probe::Firewall;
use crate::ribinfo::collect::roce::is_roce;

/// Destination UDP port of RoCE v2.
const ROCE: u16 = 4791;

pub(super) fn check(facts: &HostFacts<'_>) -> Vec<Finding> {
    let firewall = &facts.probe.firewall;
    if firewall.nft.is_none() && firewall.iptables.is_none() && firewall.ip6tables.is_none() {
        let filtered = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"]
            .iter()
            .any(|path| facts.root.value(path).is_some());
        let nft = facts.root.exists("/sys/module/nf_tables");
        return vec![if filtered || nft {
            Finding::ok(
                "a packet filter is loaded, but only root can read its rules: sudo nft list ruleset",
            )
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
        findings.push(check_packet(
            firewall,
            Packet {
                protocol: "udp",
                port: ROCE,
            },
            "software RoCE v2",
        ));
    }
    if hardware {
        findings.push(Finding::ok(format!(
            "RoCE v2 of hardware adapters bypasses this host's packet filter; UDP port {ROCE} must be open in the network"
        )));
    }
    findings.push(check_packet(
        firewall,
        Packet {
            protocol: "tcp",
            port: DEFAULT_PORT,
        },
        "the control connection of rperf and ribinfo",
    ));
    findings
}

fn check_packet(firewall: &Firewall, packet: Packet, traffic: &str) -> Finding {
    let Packet { protocol, port } = packet;
    let on = format!("{protocol}/{port}");
    let mut conditional = None;
    for (text, filter) in [
        (&firewall.nft, Filter::Nft),
        (&firewall.iptables, Filter::Iptables),
        (&firewall.ip6tables, Filter::Ip6tables),
    ] {
        let Some(text) = text else { continue };
        match filter.verdict(text, packet) {
            Verdict::Drop { rule, chain } => {
                return Finding::fault(format!("{traffic} is blocked by: {rule}"))
                    .on(on)
                    .with_remedy(filter.allow_command(text, packet, &chain));
            }
            Verdict::Conditional(rule) => conditional = Some(rule),
            Verdict::Accept => {}
        }
    }
    match conditional {
        Some(rule) => Finding::ok(format!("{traffic} is allowed under a condition: {rule}")).on(on),
        None => Finding::ok(format!("{traffic} is allowed")).on(on),
    }
}

/// The command that printed the rules.
#[derive(Clone, Copy)]
enum Filter {
    Nft,
    Iptables,
    Ip6tables,
}

impl Filter {
    fn verdict(self, text: &str, packet: Packet) -> Verdict {
        match self {
            Self::Nft => nft(text, packet),
            Self::Iptables | Self::Ip6tables => iptables(text, packet),
        }
    }

    /// Returns the command that allows the packet, for firewalld or ufw if they manage the rules.
    fn allow_command(self, text: &str, Packet { protocol, port }: Packet, chain: &str) -> String {
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
            Self::Iptables => format!("iptables -I INPUT -p {protocol} --dport {port} -j ACCEPT"),
            Self::Ip6tables => format!("ip6tables -I INPUT -p {protocol} --dport {port} -j ACCEPT"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedy_uses_the_tool_that_manages_the_rules() {
        let rules = |table: &str, more: &str| {
            format!(
                "table inet {table} {{\nchain in {{\ntype filter hook input priority 0; policy drop;\n{more}}}\n}}\n"
            )
        };
        let remedy = |text: String| {
            let firewall = Firewall {
                nft: Some(text),
                ..Firewall::default()
            };
            check_packet(
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
            remedy(rules("own", "")),
            "nft insert rule inet own in udp dport 4791 accept"
        );
        assert!(
            remedy(rules("firewalld", ""))
                .starts_with("firewall-cmd --permanent --add-port=4791/udp")
        );
        assert_eq!(
            remedy(rules("filter", "jump ufw-before-input\n")),
            "ufw allow 4791/udp"
        );
    }
}
