//! Rules that the commands of this host do not print, and rules that cannot be evaluated. The test
//! `netns_firewall` compares verdicts with the kernel.

use std::fmt::Write as _;

use super::*;
use serde_json::json;

fn roce() -> Packet {
    Packet {
        direction: Direction::Input,
        family: Family::V4,
        protocol: Protocol::Udp,
        netdev: "eth0".into(),
        local: None,
        peer: None,
        source_port: None,
        destination_port: Some(4791),
        is_reply: false,
    }
}

/// Returns the verdict of a chain with these statements of one rule, and with the policy to drop.
fn verdict(statements: &serde_json::Value) -> Verdict {
    let json = json!({"nftables": [
        {"metainfo": {"version": "9.9.9"}},
        {"counter": {"family": "inet", "table": "t", "name": "c", "bytes": 1_u64 << 40}},
        {"chain": {"family": "inet", "table": "t", "name": "i", "hook": "input", "prio": 0, "policy": "drop"}},
        {"rule": {"family": "inet", "table": "t", "chain": "i", "handle": 7, "expr": statements}},
    ]});
    let firewall = Firewall {
        nft_json: Some(json.to_string()),
        nft: Some("table inet t { # handle 1\n\tchain i {\n\t\tthe rule # handle 7\n".into()),
        ..Firewall::default()
    };
    Ruleset::parse(&firewall).unwrap().verdict(&roce())
}

#[test]
fn statement_of_a_newer_nft_is_undecided() {
    let unknown = Verdict::Unknown {
        rule: "the rule".into(),
    };
    assert_eq!(verdict(&json!([{"accept": null}])), Verdict::Accept);
    for statement in [
        json!({"new statement": {"key": 1}}),
        json!({"match": {"op": "==", "left": {"meta": {"key": "new"}}, "right": 1}}),
        json!({"match": {"op": "new", "left": {"meta": {"key": "mark"}}, "right": 1}}),
        json!({"quota": {"val": 1_u64 << 40, "val_unit": "bytes"}}),
        json!({"xt": null}),
        json!({"match": {"op": "==", "left": {"payload": {"protocol": "ip", "field": "saddr"}}, "right": "10.0.0.1"}}),
        json!({"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": "@gone"}}),
    ] {
        assert_eq!(
            verdict(&json!([statement, {"accept": null}])),
            unknown,
            "{statement}"
        );
    }
    // The kind of an unknown last statement is not known either.
    assert_eq!(
        verdict(&json!([{"xt": {"type": "target", "name": "NEW"}}])),
        unknown
    );
    // The undecided condition does not matter.
    let port = json!({"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}}, "right": 5}});
    assert!(matches!(
        verdict(&json!([port, {"xt": null}, {"accept": null}])),
        Verdict::Drop { rule, .. } if rule == "the policy of chain inet t i"
    ));
}

#[test]
fn loop_of_jumps_ends_undecided() {
    let jump = json!([{"jump": {"target": "i"}}]);
    assert!(matches!(verdict(&jump), Verdict::Unknown { .. }));
}

#[test]
fn chains_with_many_paths_are_decided() {
    // Six undecided jumps on each of ten levels: 60 million paths, and all of them accept.
    let mut saved = "*filter\n:INPUT ACCEPT\n-A INPUT -j c0\n".to_owned();
    for level in 0..10 {
        writeln!(saved, ":c{level} -").unwrap();
        for _ in 0..6 {
            writeln!(saved, "-A c{level} -m new -j c{}", level + 1).unwrap();
        }
    }
    saved += ":c10 -\n-A c10 -j ACCEPT\nCOMMIT\n";
    let firewall = Firewall {
        iptables: Some(saved),
        ..Firewall::default()
    };
    let ruleset = Ruleset::parse(&firewall).unwrap();
    assert_eq!(ruleset.verdict(&roce()), Verdict::Accept);
}

#[test]
fn output_that_is_not_json_is_an_error() {
    for text in ["", "{", "[]", "{}", "{\"nftables\": 3}"] {
        let firewall = Firewall {
            nft_json: Some(text.into()),
            ..Firewall::default()
        };
        assert!(Ruleset::parse(&firewall).is_err(), "{text}");
    }
    for saved in [
        "",
        "*",
        "*filter\n-A",
        "*filter\n:INPUT DROP\n-A INPUT -j\n-A INPUT !\n-A INPUT \"x",
    ] {
        let firewall = Firewall {
            iptables: Some(saved.into()),
            ipsets: Some("create\nadd x\ncreate x hash:ip,port\nadd x 1,,\n".into()),
            ..Firewall::default()
        };
        let _ = Ruleset::parse(&firewall).unwrap().verdict(&roce());
    }
}
