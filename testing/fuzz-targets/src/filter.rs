//! The output of nft, iptables-save and ipset.

use std::net::IpAddr;

use host::filter::{Direction, Family, NeighborMessage, Packet, Protocol, Ruleset};
use host::probe::Firewall;

use crate::two_texts;

/// Evaluates the rules for packets of each protocol and direction.
fn evaluate(rules: &Ruleset) {
    let v4: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
    let v6: [IpAddr; 2] = [
        "fd00::1".parse().expect("an address"),
        "fd00::2".parse().expect("an address"),
    ];
    for (protocol, port) in [
        (Protocol::Udp, 4791),
        (Protocol::Tcp, 19765),
        (Protocol::Icmpv6(NeighborMessage::Solicitation), 0),
        (Protocol::Icmpv6(NeighborMessage::Advertisement), 0),
    ] {
        for direction in [Direction::Input, Direction::Output] {
            for (family, [local, peer]) in [(Family::V4, v4), (Family::V6, v6)] {
                let packet = Packet {
                    direction,
                    family,
                    protocol,
                    netdev: "eth0".into(),
                    local: Some(local),
                    peer: Some(peer.into()),
                    source_port: None,
                    destination_port: Some(port),
                    is_reply: false,
                };
                assert_eq!(rules.verdict(&packet), rules.verdict(&packet));
            }
        }
    }
}

/// `nft -j list ruleset`, and after a line `---` the text of the same rules.
pub fn nft_json(data: &[u8]) {
    let (json, text) = two_texts(data);
    let firewall = Firewall {
        nft_json: Some(json),
        nft: Some(text),
        ..Firewall::default()
    };
    if let Ok(rules) = Ruleset::parse(&firewall) {
        evaluate(&rules);
    }
}

/// `iptables-save`, and after a line `---` the output of `ipset save`.
pub fn iptables_save(data: &[u8]) {
    let (saved, sets) = two_texts(data);
    let firewall = Firewall {
        iptables: Some(saved.clone()),
        ip6tables: Some(saved),
        ipsets: Some(sets),
        ..Firewall::default()
    };
    evaluate(&Ruleset::parse(&firewall).expect("no JSON"));
}
