//! Rules printed by `iptables-save` and `ip6tables-save`.

use super::{Action, Chain, Condition, Packet, Rule, Table, Verdict, combined_verdict, port_in};

/// Returns the result of the rules for a packet.
pub fn iptables(saved: &str, packet: Packet) -> Verdict {
    let mut tables: Vec<Table> = Vec::new();
    for line in saved.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            tables.push(Table {
                name: name.to_owned(),
                chains: Vec::new(),
            });
            continue;
        }
        let Some(table) = tables.last_mut() else {
            continue;
        };
        // Only the table `filter` blocks packets.
        let filter = table.name == "filter";
        if let Some((name, policy)) = line.strip_prefix(':').and_then(|rest| rest.split_once(' ')) {
            let input = name == "INPUT" && filter;
            table.chains.push(Chain {
                name: name.to_owned(),
                input,
                drops: policy.starts_with("DROP"),
                rules: Vec::new(),
            });
        } else if let Some((name, rest)) = line
            .strip_prefix("-A ")
            .and_then(|rest| rest.split_once(' '))
        {
            if let Some(chain) = table.chains.iter_mut().find(|chain| chain.name == name) {
                chain.rules.push(rule(rest, line, packet));
            }
        }
    }
    combined_verdict(&tables)
}

fn rule(text: &str, line: &str, packet: Packet) -> Rule {
    let words = words(text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut holds = Condition::Yes;
    let mut action = Action::Nothing;
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        let used = match rest {
            ["-j", "ACCEPT", ..] => set_action(&mut action, Action::Accept, rest.len()),
            ["-j", "DROP" | "REJECT", ..] => set_action(&mut action, Action::Drop, rest.len()),
            ["-j", "RETURN", ..] => set_action(&mut action, Action::Return, rest.len()),
            // A user-defined chain, or a target after which the evaluation continues.
            ["-j", to, ..] => set_action(&mut action, Action::Jump((*to).to_owned()), rest.len()),
            ["-g", to, ..] => set_action(&mut action, Action::Goto((*to).to_owned()), rest.len()),
            ["-m" | "--comment", _, ..] => 2,
            ["!", "-i", "lo", ..] => 3,
            ["-i", "lo", ..] => add_condition(&mut holds, Condition::No, 2),
            ["-p", protocol, ..] => {
                let number = if packet.protocol == "udp" { "17" } else { "6" };
                add_condition(
                    &mut holds,
                    Condition::from_bool(
                        *protocol == packet.protocol || *protocol == number || *protocol == "all",
                    ),
                    2,
                )
            }
            ["--dport" | "--dports", ports, ..] => {
                let found: Option<Vec<bool>> = ports
                    .split(',')
                    .map(|one| port_in(packet.port, one))
                    .collect();
                add_condition(
                    &mut holds,
                    found.map_or(Condition::Unknown, |found| {
                        Condition::from_bool(found.contains(&true))
                    }),
                    2,
                )
            }
            ["--state" | "--ctstate", states, ..] => add_condition(
                &mut holds,
                Condition::from_bool(
                    states
                        .split(',')
                        .any(|state| state == "NEW" || state == "UNTRACKED"),
                ),
                2,
            ),
            ["!", _, _, ..] => add_condition(&mut holds, Condition::Unknown, 3),
            _ => add_condition(&mut holds, Condition::Unknown, 1),
        };
        rest = rest.get(used..).unwrap_or_default();
    }
    Rule {
        holds,
        action,
        text: line.to_owned(),
    }
}

fn set_action(action: &mut Action, to: Action, used: usize) -> usize {
    *action = to;
    used
}

fn add_condition(holds: &mut Condition, other: Condition, used: usize) -> usize {
    *holds = holds.and(other);
    used
}

/// Splits a rule into words. A quoted text is one word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
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
    const SAVED: &str = "*nat\n:INPUT DROP [0:0]\nCOMMIT\n*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:rdma - [0:0]\n-A INPUT -i lo -j ACCEPT\n-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n-A INPUT -m comment --comment \"local rules\" -j rdma\n-A rdma -p tcp -m tcp --dport 19765 -j ACCEPT\n-A rdma -s 10.0.0.0/8 -p udp -m udp --dport 4791 -j ACCEPT\nCOMMIT\n";

    #[test]
    fn rules_and_policies_are_applied() {
        assert_eq!(iptables(SAVED, CONTROL), Verdict::Accept);
        assert!(
            matches!(iptables(SAVED, ROCE), Verdict::Conditional(rule) if rule.contains("10.0.0.0/8"))
        );
        let open = SAVED.replace("-s 10.0.0.0/8 ", "");
        assert_eq!(iptables(&open, ROCE), Verdict::Accept);
        let closed = SAVED.replace("4791", "4792");
        let chain = "filter INPUT".to_owned();
        let rule = "the policy of chain filter INPUT".to_owned();
        assert_eq!(
            iptables(&closed, ROCE),
            Verdict::Drop {
                rule,
                chain: chain.clone()
            }
        );
        let multi = SAVED
            .replace("-s 10.0.0.0/8 ", "")
            .replace("-m udp --dport 4791", "-m multiport --dports 1,4790:4792");
        assert_eq!(iptables(&multi, ROCE), Verdict::Accept);
        let dropped =
            "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -p udp -m udp --dport 4791 -j DROP\nCOMMIT\n";
        let rule = "-A INPUT -p udp -m udp --dport 4791 -j DROP".to_owned();
        assert_eq!(iptables(dropped, ROCE), Verdict::Drop { rule, chain });
        assert_eq!(iptables("", ROCE), Verdict::Accept);
    }
}
