//! The packet filter, evaluated for the packets of RDMA traffic and of the tools.

use std::net::IpAddr;

use base::ports;
use host::HostFacts;
use host::filter::{Direction, Family, NeighborMessage, Packet, Protocol, Ruleset, Verdict};
use host::roce::is_roce;
use ipnet::IpNet;

use super::addresses::is_link_local;
use super::finding::{Finding, Level};

/// Destination UDP port of RoCE v2.
const ROCE: u16 = 4791;
/// Port of connections to `ribping -S` and `rping -s`.
const RPING: u16 = ports::RPING;
/// Port of NFS over RDMA.
const NFS: u16 = 20049;
/// TCP port of perftest.
const PERFTEST: u16 = 18515;

/// The use of a port, or what IPv6 needs for every packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Service {
    Port(Protocol, u16),
    NeighborDiscovery,
}

/// A kind of traffic that the packet filter must accept.
#[derive(Clone, Debug)]
struct Traffic {
    service: Service,
    text: String,
    /// The level of the finding if it is blocked.
    level: Level,
    netdevs: Vec<String>,
    /// One interface that accepts it is enough.
    is_any: bool,
}

pub(super) fn check(facts: &HostFacts) -> Vec<Finding> {
    let firewall = &facts.probe.firewall;
    let has_nf_tables = facts.modules.is_present("nf_tables");
    let is_loaded = has_nf_tables || facts.has_ip_tables;
    if firewall.nft_json.is_none() && firewall.iptables.is_none() && firewall.ip6tables.is_none() {
        return vec![if is_loaded {
            Finding::unknown(
                "a packet filter is loaded, but its rules cannot be read: this needs root, and the commands nft or iptables-save",
            )
            .with_remedy("sudo ribinfo check firewall")
        } else {
            Finding::ok("no packet filter is loaded")
        }];
    }
    let mut findings = Vec::new();
    let ruleset = match Ruleset::parse(firewall) {
        Ok(ruleset) => ruleset,
        Err(error) => {
            return vec![
                Finding::unknown(format!(
                    "the output of nft -j list ruleset is invalid: {error}"
                ))
                .with_remedy("nft list ruleset"),
            ];
        }
    };
    if firewall.nft_json.is_none() && has_nf_tables {
        findings.push(
            Finding::unknown("rules of nftables may exist, but the command nft is missing")
                .with_remedy("install nftables (apt, dnf or zypper)"),
        );
    }
    if facts
        .ports()
        .any(|(device, port)| is_roce(device, port) && !device.is_software())
    {
        findings.push(Finding::ok(format!(
            "RoCE v2 of hardware adapters bypasses this host's packet filter; UDP port {ROCE} must be open in the network"
        )));
    }
    for traffic in traffic(facts) {
        findings.push(check_traffic(facts, &ruleset, &traffic));
    }
    findings
}

/// Returns the traffic of this host, in the order of the report.
fn traffic(facts: &HostFacts) -> Vec<Traffic> {
    let netdevs_of = |is_wanted: &dyn Fn(bool) -> bool| -> Vec<String> {
        let mut names: Vec<String> = facts
            .ports()
            .filter(|(device, port)| {
                device.is_software() && port.is_ethernet() && is_wanted(device.is_iwarp())
            })
            .filter_map(|(_, port)| port.netdev.clone())
            .collect();
        names.dedup();
        names
    };
    let (roce, iwarp) = (netdevs_of(&|iwarp| !iwarp), netdevs_of(&|iwarp| iwarp));
    let with_address: Vec<String> = facts
        .netdevs
        .iter()
        .filter(|netdev| netdev.name != "lo" && netdev.up)
        .filter(|netdev| facts.addresses(&netdev.name).next().is_some())
        .map(|netdev| netdev.name.clone())
        .collect();
    let tcp = |port, text: &str, netdevs: &[String]| Traffic {
        service: Service::Port(Protocol::Tcp, port),
        text: text.to_owned(),
        // Filters are meant to block the ports of programs that do not run.
        level: match port {
            _ if facts.listening.contains(&port) => Level::Fault,
            RPING => Level::Warning,
            _ => Level::Ok,
        },
        netdevs: netdevs.to_vec(),
        is_any: netdevs == with_address,
    };
    let mut all = vec![
        Traffic {
            service: Service::Port(Protocol::Udp, ROCE),
            text: "software RoCE v2, with all its ports of rdma_cm".to_owned(),
            level: Level::Fault,
            netdevs: roce,
            is_any: false,
        },
        tcp(RPING, "ribping and rping over software iWARP", &iwarp),
        tcp(NFS, "NFS over RDMA on software iWARP", &iwarp),
        tcp(
            ports::CONTROL,
            "the control connection of rperf, qperf and ribinfo",
            &with_address,
        ),
        tcp(
            PERFTEST,
            "the control connection of perftest",
            &with_address,
        ),
    ];
    for listener in facts.probe.listeners.iter() {
        let is_listener = |traffic: &Traffic| matches!(traffic.service, Service::Port(_, port) if port == listener.port);
        if !all.iter().any(is_listener) {
            let text = format!("the running server {}", listener.program);
            all.push(tcp(listener.port, &text, &with_address));
        }
    }
    let with_ipv6 = with_address.iter().filter(|netdev| {
        facts
            .addresses(netdev)
            .any(|address| is_routable_ipv6(address.ip))
    });
    all.push(Traffic {
        service: Service::NeighborDiscovery,
        text: "IPv6 neighbor discovery, which RoCE v2 over IPv6 needs as well".to_owned(),
        level: Level::Warning,
        netdevs: with_ipv6.cloned().collect(),
        is_any: false,
    });
    all.retain(|traffic| !traffic.netdevs.is_empty());
    all
}

fn is_routable_ipv6(ip: IpAddr) -> bool {
    ip.is_ipv6() && !is_link_local(ip)
}

fn check_traffic(facts: &HostFacts, ruleset: &Ruleset, traffic: &Traffic) -> Finding {
    let Traffic {
        service,
        text,
        level,
        netdevs,
        is_any,
    } = traffic;
    let on = match service {
        Service::Port(protocol, port) => format!("{}/{port}", protocol.name()),
        Service::NeighborDiscovery => "icmpv6".to_owned(),
    };
    let mut unknown = None;
    let mut blocked: Option<(String, String, Packet)> = None;
    let mut blocked_on: Vec<&str> = Vec::new();
    for netdev in netdevs {
        for packet in packets(facts, netdev, *service) {
            match ruleset.verdict(&packet) {
                Verdict::Accept => {}
                Verdict::Unknown { rule } => unknown = unknown.or(Some((rule, packet))),
                Verdict::Drop { rule, chain } => {
                    if !blocked_on.contains(&netdev.as_str()) {
                        blocked_on.push(netdev);
                    }
                    blocked = blocked.or(Some((rule, chain, packet)));
                }
            }
        }
    }
    let is_enough = *is_any && blocked_on.len() < netdevs.len();
    let finding = match (blocked.filter(|_| !is_enough), unknown) {
        (Some((rule, chain, packet)), _) => {
            let idle = match service {
                Service::Port(..) if *level != Level::Fault => " (no server listens on it now)",
                _ => "",
            };
            Finding {
                level: *level,
                ..Finding::ok(format!(
                    "{text}: {} on {} are blocked by: {rule}{idle}",
                    describe(&packet),
                    blocked_on.join(", ")
                ))
            }
            .with_remedy(allow_command(ruleset, &packet, *service, &chain))
        }
        (None, Some((rule, packet))) => Finding::unknown(format!(
            "{text}: whether {} on {} are accepted depends on: {rule}",
            describe(&packet),
            packet.netdev
        ))
        .with_remedy(
            "nft list ruleset; iptables-save (compare the rule with the address of the peer)",
        ),
        (None, None) => {
            let mut accepting = netdevs.clone();
            accepting.retain(|netdev| !blocked_on.contains(&netdev.as_str()));
            Finding::ok(format!("{text}: accepted on {}", accepting.join(", ")))
        }
    };
    finding.on(on)
}

/// Returns the packets that must be accepted for a service on a port of this host, for a client on
/// this host that uses the port of a peer, and for neighbor discovery in both directions.
fn packets(facts: &HostFacts, netdev: &str, service: Service) -> Vec<Packet> {
    let mut ends: Vec<(Family, Option<IpAddr>, Option<IpNet>)> = facts
        .addresses(netdev)
        .filter(|address| service != Service::NeighborDiscovery || is_routable_ipv6(address.ip))
        .map(|address| {
            let bits = address.bits.and_then(|bits| u8::try_from(bits).ok());
            let network = bits.and_then(|bits| IpNet::new(address.ip, bits).ok());
            let family = if address.ip.is_ipv4() {
                Family::V4
            } else {
                Family::V6
            };
            (
                family,
                Some(address.ip),
                network.map(|network| network.trunc()),
            )
        })
        .collect();
    if ends.is_empty() {
        ends = vec![(Family::V4, None, None), (Family::V6, None, None)];
    }
    let mut packets = Vec::new();
    for (family, local, peer) in ends {
        let packet = |direction, protocol, source_port, destination_port, is_reply| Packet {
            direction,
            family,
            protocol,
            netdev: netdev.to_owned(),
            local,
            peer,
            source_port,
            destination_port,
            is_reply,
        };
        let (input, output) = (Direction::Input, Direction::Output);
        match service {
            Service::Port(protocol, port) => {
                packets.push(packet(input, protocol, None, Some(port), false));
                packets.push(packet(output, protocol, None, Some(port), false));
                if protocol == Protocol::Tcp {
                    packets.push(packet(output, protocol, Some(port), None, true));
                    packets.push(packet(input, protocol, Some(port), None, true));
                }
            }
            Service::NeighborDiscovery => {
                let request = Protocol::Icmpv6(NeighborMessage::Solicitation);
                let reply = Protocol::Icmpv6(NeighborMessage::Advertisement);
                packets.push(packet(input, request, None, None, false));
                packets.push(packet(output, request, None, None, false));
                packets.push(packet(output, reply, None, None, true));
                packets.push(packet(input, reply, None, None, true));
            }
        }
    }
    packets
}

fn describe(packet: &Packet) -> &'static str {
    let is_neighbor = matches!(packet.protocol, Protocol::Icmpv6(_));
    match (packet.direction, packet.is_reply) {
        (Direction::Input, false) if is_neighbor => "incoming solicitations",
        (Direction::Input, true) if is_neighbor => "incoming advertisements",
        (Direction::Output, false) if is_neighbor => "outgoing solicitations",
        (Direction::Output, true) if is_neighbor => "outgoing advertisements",
        (Direction::Input, false) => "incoming packets",
        (Direction::Input, true) => "replies to a client on this host",
        (Direction::Output, false) => "outgoing packets",
        (Direction::Output, true) => "replies of a server on this host",
    }
}

/// Returns the command that allows the packet, for firewalld or ufw if they manage the rules.
fn allow_command(ruleset: &Ruleset, packet: &Packet, service: Service, chain: &str) -> String {
    let netdev = &packet.netdev;
    let is_input = packet.direction == Direction::Input;
    if (ruleset.has(" firewalld") || ruleset.has("INPUT_ZONES")) && is_input {
        let allowed = match service {
            Service::Port(protocol, port) => format!("--add-port={port}/{}", protocol.name()),
            Service::NeighborDiscovery => "--add-protocol=ipv6-icmp".to_owned(),
        };
        return format!(
            "firewall-cmd --permanent --zone=$(firewall-cmd --get-zone-of-interface={netdev} || firewall-cmd --get-default-zone) {allowed} && firewall-cmd --reload"
        );
    }
    if ruleset.has("ufw-before-input") {
        return match service {
            Service::Port(protocol, port) => {
                let out = if is_input { "" } else { "out " };
                format!("ufw allow {out}{port}/{}", protocol.name())
            }
            Service::NeighborDiscovery => {
                "accept ICMPv6 types 135 and 136 in /etc/ufw/before6.rules, then ufw reload"
                    .to_owned()
            }
        };
    }
    let port_of = if packet.is_reply { "sport" } else { "dport" };
    // Chains of nft have three words, such as `inet filter input`, and those of iptables two.
    if chain.split(' ').count() == 2 {
        let command = match packet.family {
            Family::V4 => "iptables",
            Family::V6 => "ip6tables",
        };
        let (table, chain) = chain.split_once(' ').unwrap_or(("filter", chain));
        let condition = match service {
            Service::Port(protocol, port) => format!("-p {} --{port_of} {port}", protocol.name()),
            Service::NeighborDiscovery if packet.is_reply => {
                "-p ipv6-icmp --icmpv6-type neighbour-advertisement".to_owned()
            }
            Service::NeighborDiscovery => {
                "-p ipv6-icmp --icmpv6-type neighbour-solicitation".to_owned()
            }
        };
        return format!("{command} -t {table} -I {chain} {condition} -j ACCEPT");
    }
    let condition = match service {
        Service::Port(protocol, port) => format!("{} {port_of} {port}", protocol.name()),
        Service::NeighborDiscovery => {
            "icmpv6 type '{ nd-neighbor-solicit, nd-neighbor-advert }'".to_owned()
        }
    };
    format!("nft insert rule {chain} {condition} accept")
}
