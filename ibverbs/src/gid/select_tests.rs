//! Tests of the choice on made-up GID tables.

use super::*;
use crate::gid::table::GidIndex;

/// Builds a GID table from lines `address[/prefix] version`.
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

fn chosen(lines: &[&str], query: GidQuery) -> Result<u8, String> {
    let choice = choose(&table(lines), LinkLayer::ETHERNET, &query);
    choice
        .map(|choice| choice.entry.index.0)
        .map_err(|rejections| rejections.join("; "))
}

fn reason(lines: &[&str], query: GidQuery) -> String {
    choose(&table(lines), LinkLayer::ETHERNET, &query)
        .expect("a choice")
        .reason
}

fn for_peer(peer: &str) -> GidQuery {
    GidQuery::for_peer(gid(peer))
}

/// The table of mlx5: each address with both RoCE versions.
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
fn prefers_the_peers_subnet_and_roce_v2() {
    assert_eq!(chosen(BOTH, for_peer("10.1.200.9")), Ok(3));
    assert_eq!(chosen(BOTH, for_peer("192.168.7.9")), Ok(7));
    assert_eq!(chosen(BOTH, for_peer("fd00::9")), Ok(5));
    assert_eq!(
        reason(BOTH, for_peer("10.1.200.9")),
        "in the peer's subnet 10.1.0.0/16; RoCE v2"
    );
}

#[test]
fn link_local_entries_match_link_local_peers_only() {
    assert_eq!(chosen(BOTH, for_peer("fe80::9")), Ok(1));
    assert_eq!(
        reason(BOTH, for_peer("fe80::9")),
        "link-local like the peer; RoCE v2"
    );
    let rejection = chosen(&["fe80::1/64 v2"], for_peer("fd00::9")).expect_err("none");
    assert_eq!(
        rejection,
        "gid[0] fe80::1 (RoCE v2) is link-local, but the peer is not"
    );
    let rejection = chosen(&["fd00::1/64 v2"], for_peer("fe80::9")).expect_err("none");
    assert_eq!(
        rejection,
        "gid[0] fd00::1 (RoCE v2) is not link-local, but the peer is"
    );
    assert_eq!(
        chosen(
            &["169.254.3.1/16 v2", "10.1.0.1/16 v2"],
            for_peer("169.254.9.9")
        ),
        Ok(0)
    );
}

#[test]
fn peer_in_another_subnet_needs_roce_v2() {
    assert_eq!(
        chosen(BOTH, for_peer("10.2.0.1")),
        Ok(3),
        "most bits in common"
    );
    assert!(reason(BOTH, for_peer("10.2.0.1")).contains("routed"));
    let rejection = chosen(&["10.1.0.1/16 v1"], for_peer("10.2.0.1")).expect_err("none");
    assert!(rejection.contains("not routable"), "{rejection}");
    assert_eq!(
        chosen(&["10.1.0.1 v1"], for_peer("10.2.0.1")),
        Ok(0),
        "may be in the peer's subnet: the prefix is unknown"
    );
}

#[test]
fn subnet_outranks_version() {
    assert_eq!(
        chosen(&["10.1.0.1/16 v1", "10.2.0.1/16 v2"], for_peer("10.1.0.9")),
        Ok(0)
    );
}

#[test]
fn entries_must_match_the_query() {
    assert_eq!(
        chosen(BOTH, for_peer("10.1.0.9").kind(GidType::ROCE_V1)),
        Ok(2)
    );
    assert_eq!(
        chosen(BOTH, for_peer("10.1.0.9").source(gid("192.168.7.1"))),
        Ok(7)
    );
    assert_eq!(chosen(BOTH, GidQuery::new().family(IpFamily::V6)), Ok(5));
    let rejection = chosen(&["10.1.0.1/16 v2"], for_peer("fd00::9")).expect_err("none");
    assert_eq!(
        rejection,
        "gid[0] ::ffff:10.1.0.1 (RoCE v2) is IPv4, but the peer is IPv6"
    );
    let rejection = chosen(&["10.1.0.1/16 v2"], GidQuery::new().kind(GidType::ROCE_V1));
    assert_eq!(
        rejection.expect_err("none"),
        "gid[0] ::ffff:10.1.0.1 (RoCE v2) is not RoCE v1"
    );
    let rejection = chosen(&["10.1.0.1/16 v2"], GidQuery::new().ifindex(7));
    assert_eq!(
        rejection.expect_err("none"),
        "gid[0] ::ffff:10.1.0.1 (RoCE v2) is on another interface"
    );
}

#[test]
fn without_peer_prefers_roce_v2_then_global_then_ipv4() {
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
        "the version outranks the scope"
    );
}

#[test]
fn own_address_as_peer_selects_that_entry() {
    assert_eq!(chosen(BOTH, for_peer("192.168.7.1")), Ok(7));
    assert!(reason(BOTH, for_peer("fe80::1")).contains("both ends are this port"));
}

#[test]
fn empty_table_matches_nothing() {
    assert_eq!(chosen(&[], for_peer("10.1.0.9")), Err(String::new()));
}

#[test]
fn infiniband_uses_the_subnet_prefix() {
    let table = table(&["fe80::2:c903:1:1 ib", "fec0:0:0:7:2:c903:1:1 ib"]);
    let index =
        |query| choose(&table, LinkLayer::INFINIBAND, &query).map(|choice| choice.entry.index.0);
    assert_eq!(index(for_peer("fe80::2:c903:9:9")), Ok(0));
    assert_eq!(index(for_peer("fec0:0:0:7::9")), Ok(1));
    assert_eq!(index(for_peer("fec0:0:0:8::9")), Ok(0));
    assert_eq!(index(GidQuery::default()), Ok(0));
    let rejections = index(GidQuery::new().kind(GidType::ROCE_V2)).expect_err("none");
    assert_eq!(rejections.len(), 2);
    assert!(index(GidQuery::new().family(IpFamily::V4)).is_err());
}

#[test]
fn help_names_the_missing_version_or_family() {
    let only_v2 = table(&["10.1.0.1/16 v2"]);
    let v1 = GidQuery::new().kind(GidType::ROCE_V1);
    assert_eq!(
        help(&v1, &only_v2),
        "request another RoCE version: this port has no RoCE v1 entry"
    );
    assert!(help(&for_peer("fd00::9"), &only_v2).starts_with("give the interface an IPv6 address"));
    assert_eq!(
        for_peer("10.1.0.9").family(IpFamily::V4).to_string(),
        "IPv4, peer 10.1.0.9"
    );
    assert_eq!(GidQuery::default().to_string(), "any");
}

#[test]
fn network_clears_the_host_bits() {
    for (ip, prefix, text) in [
        ("10.1.2.3", 8, "10.0.0.0/8"),
        ("10.1.2.3", 32, "10.1.2.3/32"),
        ("10.1.2.3", 0, "0.0.0.0/0"),
        ("fd00:1:2:3::4", 48, "fd00:1:2::/48"),
    ] {
        assert_eq!(network(ip.parse().expect("ip"), prefix), text);
    }
}
