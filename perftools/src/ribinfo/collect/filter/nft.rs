//! Rules printed by `nft list ruleset`.

use super::{Action, Chain, Condition, Packet, Rule, Table, Verdict, combined_verdict, port_in};

/// Returns the result of the ruleset for a packet.
pub fn nft(ruleset: &str, packet: Packet) -> Verdict {
    let mut tables: Vec<Table> = Vec::new();
    // The blocks whose closing brace has not been read yet.
    let mut open: Vec<Block> = Vec::new();
    for line in ruleset.lines() {
        let line = line.trim();
        let words: Vec<&str> = line.split_whitespace().collect();
        match (words.as_slice(), open.last()) {
            ([], _) => {}
            (["table", family, name, "{"], None) => {
                tables.push(Table {
                    name: format!("{family} {name}"),
                    chains: Vec::new(),
                });
                let is_ip = matches!(*family, "ip" | "ip6" | "inet");
                open.push(if is_ip { Block::Table } else { Block::Other });
            }
            (["chain", name, "{"], Some(Block::Table)) => {
                if let Some(table) = tables.last_mut() {
                    table.chains.push(Chain {
                        name: (*name).to_owned(),
                        ..Chain::default()
                    });
                }
                open.push(Block::Chain);
            }
            (["}"], _) => {
                open.pop();
            }
            ([.., "{"], Some(Block::Table | Block::Other) | None) => open.push(Block::Other),
            (_, Some(Block::Chain)) => {
                if let Some(chain) = tables.last_mut().and_then(|table| table.chains.last_mut()) {
                    chain_line(chain, line, packet);
                }
            }
            _ => {}
        }
    }
    combined_verdict(&tables)
}

enum Block {
    Table,
    Chain,
    Other,
}

fn chain_line(chain: &mut Chain, line: &str, packet: Packet) {
    if line.starts_with("type ") {
        chain.input = line.contains("type filter") && line.contains("hook input");
        chain.drops = line.contains("policy drop");
        return;
    }
    let tokens = tokens(line);
    chain.rules.push(rule(&tokens, line, packet));
}

/// Splits a rule into tokens. A text in quotes or braces is one token, without the delimiters.
fn tokens(line: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let (token, after) = match first {
            '#' => break,
            '"' => rest[1..].split_once('"').unwrap_or((&rest[1..], "")),
            '{' => rest[1..].split_once('}').unwrap_or((&rest[1..], "")),
            _ => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        tokens.push(token.trim().to_owned());
        rest = after.trim_start();
    }
    tokens
}

fn rule(tokens: &[String], line: &str, packet: Packet) -> Rule {
    let mut holds = Condition::Yes;
    let mut action = Action::Nothing;
    let words: Vec<&str> = tokens.iter().map(String::as_str).collect();
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        let (condition, used) = match rest {
            ["accept", ..] => (Err(Action::Accept), rest.len()),
            ["drop" | "reject", ..] => (Err(Action::Drop), rest.len()),
            ["return", ..] => (Err(Action::Return), rest.len()),
            ["jump", to, ..] => (Err(Action::Jump((*to).to_owned())), rest.len()),
            ["goto", to, ..] => (Err(Action::Goto((*to).to_owned())), rest.len()),
            ["counter", "packets", _, "bytes", _, ..] => (Ok(Condition::Yes), 5),
            ["counter", ..] => (Ok(Condition::Yes), 1),
            ["comment", _, ..] => (Ok(Condition::Yes), 2),
            ["log", ..] => (Ok(Condition::Yes), log_words(rest)),
            ["iif" | "iifname", "!=", "lo", ..] => (Ok(Condition::Yes), 3),
            ["iif" | "iifname", "lo", ..] => (Ok(Condition::No), 2),
            ["iif" | "iifname", "!=", _, ..] | ["limit", "rate", _, ..] => {
                (Ok(Condition::Unknown), 3)
            }
            ["iif" | "iifname", _, ..] => (Ok(Condition::Unknown), 2),
            // The map has verdicts for other states. It does not decide about a new packet.
            ["ct", "state", "vmap", map, ..] => (Ok(Condition::No), {
                let _ = map;
                rest.len()
            }),
            ["ct", "state", "!=", _, ..] => (Ok(Condition::Unknown), 4),
            ["ct", "state", states, ..] => (
                Ok(Condition::from_bool(
                    states
                        .split(',')
                        .any(|state| matches!(state.trim(), "new" | "untracked")),
                )),
                3,
            ),
            ["meta", "l4proto", set, ..]
            | ["ip", "protocol", set, ..]
            | ["ip6", "nexthdr", set, ..] => {
                if *set == "!=" {
                    (Ok(Condition::Unknown), 4)
                } else {
                    (Ok(protocol_in(packet, set)), 3)
                }
            }
            ["udp" | "tcp" | "th", "dport", "!=", set, ..] => {
                (Ok(not(ports(packet, rest[0], set))), 4)
            }
            ["udp" | "tcp" | "th", "dport", set, ..] => (Ok(ports(packet, rest[0], set)), 3),
            ["udp" | "tcp" | "sctp" | "dccp", ..] if rest[0] != packet.protocol => {
                (Ok(Condition::No), 1)
            }
            ["icmp" | "icmpv6" | "igmp" | "esp" | "ah", ..] => (Ok(Condition::No), 1),
            _ => (Ok(Condition::Unknown), 1),
        };
        match condition {
            Ok(condition) => holds = holds.and(condition),
            Err(verdict) => action = verdict,
        }
        rest = rest.get(used..).unwrap_or_default();
    }
    Rule {
        holds,
        action,
        text: line.to_owned(),
    }
}

/// Returns the number of words of a `log` statement.
fn log_words(rest: &[&str]) -> usize {
    let mut used = 1;
    while let Some([option, _]) = rest.get(used..used + 2) {
        if !matches!(
            *option,
            "prefix" | "level" | "group" | "flags" | "snaplen" | "queue-threshold"
        ) {
            break;
        }
        used += 2;
    }
    used
}

fn not(holds: Condition) -> Condition {
    match holds {
        Condition::Yes => Condition::No,
        Condition::No => Condition::Yes,
        Condition::Unknown => Condition::Unknown,
    }
}

fn protocol_in(packet: Packet, set: &str) -> Condition {
    let number = if packet.protocol == "udp" { "17" } else { "6" };
    Condition::from_bool(
        set.split([',', ' '])
            .any(|one| one == packet.protocol || one == number),
    )
}

fn ports(packet: Packet, protocol: &str, set: &str) -> Condition {
    if protocol != "th" && protocol != packet.protocol {
        return Condition::No;
    }
    let mut holds = Condition::No;
    for one in set.split(',').map(str::trim).filter(|one| !one.is_empty()) {
        match port_in(packet.port, one) {
            Some(true) => return Condition::Yes,
            Some(false) => {}
            // A named set: `@services`.
            None => holds = Condition::Unknown,
        }
    }
    holds
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROCE: Packet = Packet {
        protocol: "udp",
        port: 4791,
    };
    const CONTROL: Packet = Packet {
        protocol: "tcp",
        port: 19765,
    };

    const SERVER: &str = r#"
table inet filter {
	set blocked {
		type ipv4_addr
		elements = { 192.0.2.1,
			     192.0.2.2 }
	}

	chain input {
		type filter hook input priority filter; policy drop;
		iif "lo" accept
		ct state established,related accept
		ct state vmap { established : accept, invalid : drop }
		ip saddr @blocked drop
		tcp dport { 22, 80, 19765 } counter packets 3 bytes 180 accept comment "the control port"
		jump more
	}

	chain more {
		meta l4proto { icmp, ipv6-icmp } accept
		icmp type echo-request limit rate 5/second accept
		log prefix "dropped: " flags all
	}

	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
"#;

    fn dropped(rule: &str, chain: &str) -> Verdict {
        Verdict::Drop {
            rule: rule.to_owned(),
            chain: chain.to_owned(),
        }
    }

    #[test]
    fn policy_drops_packets_that_no_rule_accepts() {
        assert_eq!(
            nft(SERVER, ROCE),
            dropped("the policy of chain inet filter input", "inet filter input")
        );
        assert_eq!(nft(SERVER, CONTROL), Verdict::Accept);
        let opened = SERVER.replace("jump more", "udp dport 4791 accept\n\t\tjump more");
        assert_eq!(nft(&opened, ROCE), Verdict::Accept);
        let range = SERVER.replace(
            "jump more",
            "meta l4proto udp th dport 4000-5000 accept\n\t\tjump more",
        );
        assert_eq!(nft(&range, ROCE), Verdict::Accept);
    }

    #[test]
    fn dropping_rule_is_reported() {
        let rule = "table ip t {\nchain c {\ntype filter hook input priority 0; policy accept;\nudp dport 4791 drop\n}\n}\n";
        assert_eq!(nft(rule, ROCE), dropped("udp dport 4791 drop", "ip t c"));
        assert_eq!(nft(rule, CONTROL), Verdict::Accept);
    }

    #[test]
    fn rule_with_unknown_condition_is_conditional() {
        let some = SERVER.replace("jump more", "ip saddr 10.0.0.0/8 udp dport 4791 accept");
        assert_eq!(
            nft(&some, ROCE),
            Verdict::Conditional("ip saddr 10.0.0.0/8 udp dport 4791 accept".into())
        );
    }

    #[test]
    fn firewalld_chains_are_followed() {
        let text = "table inet firewalld {\nchain filter_INPUT {\ntype filter hook input priority filter + 10; policy accept;\nct state { established, related } accept\niifname \"lo\" accept\njump filter_INPUT_ZONES\nct state invalid drop\nreject with icmpx admin-prohibited\n}\nchain filter_INPUT_ZONES {\ngoto filter_IN_public\n}\nchain filter_IN_public {\njump filter_IN_public_allow\n}\nchain filter_IN_public_allow {\ntcp dport 22 accept\n}\n}\n";
        assert_eq!(
            nft(text, ROCE),
            dropped(
                "reject with icmpx admin-prohibited",
                "inet firewalld filter_INPUT"
            )
        );
        let allowed = text.replace(
            "tcp dport 22 accept",
            "tcp dport 22 accept\nudp dport 4791 accept",
        );
        assert_eq!(nft(&allowed, ROCE), Verdict::Accept);
    }

    #[test]
    fn loop_of_jumps_ends() {
        let text = "table ip t {\nchain a {\ntype filter hook input priority 0;\njump a\njump a\njump a\n}\n}\n";
        assert_eq!(nft(text, ROCE), Verdict::Accept);
    }
}
