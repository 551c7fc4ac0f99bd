//! The choice on made-up tables.

use super::*;
use crate::gid::table::GidIndex;

/// A table of "address[/prefix] version" on an Ethernet port.
fn table(lines: &[&str]) -> Vec<Candidate> {
    (0..)
        .map(GidIndex)
        .zip(lines)
        .map(|(index, line)| {
            let (address, version) = line.split_once(' ').expect("a version");
            let (ip, prefix) = address
                .split_once('/')
                .map_or((address, None), |(ip, bits)| (ip, bits.parse().ok()));
            let kind = match version {
                "v1" => GidType::ROCE_V1,
                "v2" => GidType::ROCE_V2,
                _ => GidType::IB,
            };
            (
                GidEntry {
                    gid: gid(ip),
                    index,
                    port_num: 1,
                    kind,
                    ifindex: 0,
                },
                prefix,
            )
        })
        .collect()
}

fn gid(ip: &str) -> Gid {
    ip.parse::<IpAddr>().expect("an address").into()
}

fn chosen(lines: &[&str], query: GidQuery) -> std::result::Result<u8, String> {
    let choice = choose(&table(lines), LinkLayer::ETHERNET, &query);
    choice
        .map(|choice| choice.entry.index.0)
        .map_err(|refusals| refusals.join("; "))
}

fn reason(lines: &[&str], query: GidQuery) -> String {
    choose(&table(lines), LinkLayer::ETHERNET, &query)
        .expect("a choice")
        .reason
}

fn to(peer: &str) -> GidQuery {
    GidQuery::to(gid(peer))
}

/// What mlx5 shows: each address in both versions.
const BOTH: &[&str] = &[
    "fe80::1/64 v1",
    "fe80::1/64 v2",
    "10.1.0.1/16 v1",
    "10.1.0.1/16 v2",
    "fd00::1/64 v1",
    "fd00::1/64 v2",
    "192.168.7.1/24 v1",
    "192.168.7.1/24 v2",
];

#[test]
fn an_entry_in_the_peers_subnet_of_version_2() {
    assert_eq!(chosen(BOTH, to("10.1.200.9")), Ok(3));
    assert_eq!(chosen(BOTH, to("192.168.7.9")), Ok(7));
    assert_eq!(chosen(BOTH, to("fd00::9")), Ok(5));
    assert_eq!(
        reason(BOTH, to("10.1.200.9")),
        "in the peer's subnet 10.1.0.0/16; RoCE v2"
    );
}

#[test]
fn link_local_entries_are_for_link_local_peers_and_no_others() {
    assert_eq!(chosen(BOTH, to("fe80::9")), Ok(1));
    assert_eq!(
        reason(BOTH, to("fe80::9")),
        "link-local, as the peer is; RoCE v2"
    );
    let refusal = chosen(&["fe80::1/64 v2"], to("fd00::9")).expect_err("none");
    assert_eq!(
        refusal,
        "gid[0] fe80::1 (RoCE v2) is link-local, and the peer is not"
    );
    let refusal = chosen(&["fd00::1/64 v2"], to("fe80::9")).expect_err("none");
    assert_eq!(
        refusal,
        "gid[0] fd00::1 (RoCE v2) is not link-local, as the peer is"
    );
    assert_eq!(
        chosen(&["169.254.3.1/16 v2", "10.1.0.1/16 v2"], to("169.254.9.9")),
        Ok(0)
    );
}

#[test]
fn a_peer_in_no_subnet_of_ours_is_routed_to_by_version_2_only() {
    assert_eq!(chosen(BOTH, to("10.2.0.1")), Ok(3), "most bits in common");
    assert!(reason(BOTH, to("10.2.0.1")).contains("routed"));
    let refusal = chosen(&["10.1.0.1/16 v1"], to("10.2.0.1")).expect_err("none");
    assert!(refusal.contains("does not leave its subnet"), "{refusal}");
    assert_eq!(
        chosen(&["10.1.0.1 v1"], to("10.2.0.1")),
        Ok(0),
        "of an unknown prefix, who knows"
    );
}

#[test]
fn a_subnet_counts_more_than_a_version() {
    assert_eq!(
        chosen(&["10.1.0.1/16 v1", "10.2.0.1/16 v2"], to("10.1.0.9")),
        Ok(0)
    );
}

#[test]
fn what_is_asked_for_must_be_met() {
    assert_eq!(
        chosen(
            BOTH,
            GidQuery {
                kind: Some(GidType::ROCE_V1),
                ..to("10.1.0.9")
            }
        ),
        Ok(2)
    );
    assert_eq!(
        chosen(
            BOTH,
            GidQuery {
                source: Some(gid("192.168.7.1")),
                ..to("10.1.0.9")
            }
        ),
        Ok(7)
    );
    assert_eq!(
        chosen(
            BOTH,
            GidQuery {
                family: Some(IpFamily::V6),
                ..GidQuery::default()
            }
        ),
        Ok(5)
    );
    let refusal = chosen(&["10.1.0.1/16 v2"], to("fd00::9")).expect_err("none");
    assert_eq!(
        refusal,
        "gid[0] ::ffff:10.1.0.1 (RoCE v2) is not IPv6, as the peer is"
    );
    let refusal = chosen(
        &["10.1.0.1/16 v2"],
        GidQuery {
            kind: Some(GidType::ROCE_V1),
            ..GidQuery::default()
        },
    );
    assert_eq!(
        refusal.expect_err("none"),
        "gid[0] ::ffff:10.1.0.1 (RoCE v2) is not RoCE v1"
    );
    let refusal = chosen(
        &["10.1.0.1/16 v2"],
        GidQuery {
            ifindex: Some(7),
            ..GidQuery::default()
        },
    );
    assert_eq!(
        refusal.expect_err("none"),
        "gid[0] ::ffff:10.1.0.1 (RoCE v2) is on another interface"
    );
}

#[test]
fn without_a_peer_it_is_version_2_global_ipv4_first() {
    assert_eq!(chosen(BOTH, GidQuery::default()), Ok(3));
    assert_eq!(chosen(&BOTH[..2], GidQuery::default()), Ok(1));
    assert_eq!(
        reason(BOTH, GidQuery::default()),
        "RoCE v2, a global IPv4 address"
    );
    assert!(reason(&BOTH[..2], GidQuery::default()).contains("link-local"));
    assert_eq!(
        chosen(&["fe80::1/64 v2", "fd00::1/64 v1"], GidQuery::default()),
        Ok(0),
        "the version counts more"
    );
}

#[test]
fn a_port_reaches_itself_by_the_address_named() {
    assert_eq!(chosen(BOTH, to("192.168.7.1")), Ok(7));
    assert!(reason(BOTH, to("fe80::1")).contains("both ends are this port"));
}

#[test]
fn an_empty_table_gives_nothing() {
    assert_eq!(chosen(&[], to("10.1.0.9")), Err(String::new()));
}

#[test]
fn on_infiniband_the_subnet_prefix_decides() {
    let table = table(&["fe80::2:c903:1:1 ib", "fec0:0:0:7:2:c903:1:1 ib"]);
    let index =
        |query| choose(&table, LinkLayer::INFINIBAND, &query).map(|choice| choice.entry.index.0);
    assert_eq!(index(to("fe80::2:c903:9:9")), Ok(0));
    assert_eq!(index(to("fec0:0:0:7::9")), Ok(1));
    assert_eq!(index(to("fec0:0:0:8::9")), Ok(0));
    assert_eq!(index(GidQuery::default()), Ok(0));
    let refusals = index(GidQuery {
        kind: Some(GidType::ROCE_V2),
        ..GidQuery::default()
    })
    .expect_err("none");
    assert_eq!(refusals.len(), 2);
    assert!(
        index(GidQuery {
            family: Some(IpFamily::V4),
            ..GidQuery::default()
        })
        .is_err()
    );
}

#[test]
fn the_remedy_names_what_is_missing() {
    let only_v2 = table(&["10.1.0.1/16 v2"]);
    let v1 = GidQuery {
        kind: Some(GidType::ROCE_V1),
        ..GidQuery::default()
    };
    assert_eq!(
        remedy(&v1, &only_v2),
        "this port has no RoCE v1: ask for another version"
    );
    assert!(remedy(&to("fd00::9"), &only_v2).starts_with("give the interface an IPv6 address"));
    assert_eq!(
        GidQuery {
            family: Some(IpFamily::V4),
            ..to("10.1.0.9")
        }
        .to_string(),
        "IPv4, peer 10.1.0.9"
    );
    assert_eq!(GidQuery::default().to_string(), "any path");
}

#[test]
fn a_network_is_its_address_without_the_hosts_bits() {
    for (ip, prefix, text) in [
        ("10.1.2.3", 8, "10.0.0.0/8"),
        ("10.1.2.3", 32, "10.1.2.3/32"),
        ("10.1.2.3", 0, "0.0.0.0/0"),
        ("fd00:1:2:3::4", 48, "fd00:1:2::/48"),
    ] {
        assert_eq!(network(ip.parse().expect("ip"), prefix), text);
    }
}
