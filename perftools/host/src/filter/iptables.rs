//! Rules printed by `iptables-save` and `ip6tables-save`.

use std::collections::BTreeMap;

use super::ipset::{Dimension, IpSet, IpSets, addresses};
use super::nft::tcp_flag;
use super::packet::{Element, Family, Field, Test};
use super::ruleset::{Action, Base, Chain, Hook, Rule, Step, Table};

/// Targets after which the evaluation continues with the next rule.
const CONTINUING_TARGETS: &[&str] = &[
    "LOG",
    "NFLOG",
    "ULOG",
    "TRACE",
    "AUDIT",
    "TOS",
    "DSCP",
    "TTL",
    "HL",
    "ECN",
    "TCPMSS",
    "TCPOPTSTRIP",
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "SECMARK",
    "CONNSECMARK",
    "SET",
    "TEE",
    "IDLETIMER",
    "LED",
    "RATEEST",
];

/// Options of targets whose argument is evaluated or printed, and is no free text.
const TARGET_OPTIONS: &[&str] = &[
    "--reject-with",
    "--set-mark",
    "--set-xmark",
    "--to-destination",
    "--to-ports",
    "--to-source",
];

/// Converts the output of `iptables-save` (or `ip6tables-save`, with [`Family::V6`]).
pub(super) fn parse(saved: &str, family: Family, sets: &IpSets) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut table_kind = "";
    for line in saved.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            table_kind = name;
            tables.push(Table {
                name: name.to_owned(),
                family: Some(family),
                chains: BTreeMap::new(),
            });
            continue;
        }
        let Some(table) = tables.last_mut() else {
            continue;
        };
        if let Some((name, policy)) = line.strip_prefix(':').and_then(|rest| rest.split_once(' ')) {
            let chain = Chain {
                base: base(table_kind, name, policy),
                rules: Vec::new(),
            };
            table.chains.insert(name.to_owned(), chain);
        } else if let Some((name, rest)) = line
            .strip_prefix("-A ")
            .map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
        {
            if let Some(chain) = table.chains.get_mut(name) {
                chain.rules.push(rule(rest, line, sets));
            }
        }
    }
    tables
}

/// Removes from the output of `iptables-save` what [`parse`] does not evaluate: comments, and the
/// arguments of other options.
pub(super) fn redacted(saved: &str) -> String {
    let mut kept = String::new();
    for line in saved.lines().map(str::trim) {
        match line.strip_prefix("-A ").map(words) {
            Some(words) => kept += &redacted_rule(&words),
            None if line.starts_with(['*', ':']) || line == "COMMIT" => kept += line,
            None if line.contains("(nf_tables)") => kept += "# (nf_tables)",
            None => continue,
        }
        kept.push('\n');
    }
    kept
}

fn redacted_rule(words: &[String]) -> String {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (chain, mut rest) = words.split_first().unwrap_or((&"", &[]));
    let mut kept = vec!["-A", chain];
    while let [option, arguments @ ..] = rest {
        let used = match *option {
            "--tcp-flags" | "--match-set" => 2,
            "-m" | "-g" | "-p" | "-j" | "--mark" | "--icmp-type" => 1,
            option if TARGET_OPTIONS.contains(&option) => 1,
            option => arguments
                .first()
                .and_then(|argument| field_test(option, argument))
                .map_or(0, |_| 1),
        };
        // An option is no argument.
        let is_argument = |word: &&&str| !word.starts_with('-');
        let used = used.min(arguments.iter().take_while(is_argument).count());
        let is_comment = matches!(rest, ["-m", "comment", ..] | ["--comment", ..]);
        if !is_comment && (option.starts_with('-') || *option == "!") {
            kept.extend(&rest[..=used]);
        }
        rest = &arguments[used..];
    }
    kept.join(" ")
}

fn base(table: &str, chain: &str, policy: &str) -> Option<Base> {
    let hook = match chain {
        "PREROUTING" => Hook::Prerouting,
        "INPUT" => Hook::Input,
        "OUTPUT" => Hook::Output,
        "POSTROUTING" => Hook::Postrouting,
        _ => return None,
    };
    let priority = match (table, hook) {
        ("raw", _) => -300,
        ("mangle", _) => -150,
        ("nat", Hook::Prerouting | Hook::Output) => -100,
        ("nat", _) => 100,
        ("security", _) => 50,
        _ => 0,
    };
    Some(Base {
        hook,
        priority,
        drops: policy.starts_with("DROP"),
        netdevs: None,
        is_for_netdevs: false,
    })
}

fn rule(text: &str, line: &str, sets: &IpSets) -> Rule {
    let words = words(text);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let mut steps = Vec::new();
    let mut rest = words.as_slice();
    while !rest.is_empty() {
        let is_negated = rest[0] == "!";
        let option = if is_negated { &rest[1..] } else { rest };
        let used = add_steps(&mut steps, option, is_negated, sets).max(1);
        rest = option.get(used..).unwrap_or_default();
    }
    Rule {
        steps,
        text: line.to_owned(),
    }
}

/// Adds the steps of an option. Returns the number of words.
fn add_steps(steps: &mut Vec<Step>, option: &[&str], is_negated: bool, sets: &IpSets) -> usize {
    let mut test = |field, elements| {
        steps.push(Step::Test(Test::new(field, is_negated, elements)));
    };
    match option {
        ["-j", target, ..] => {
            target_steps(steps, target, option.get(2..).unwrap_or_default());
            option.len()
        }
        ["-g", chain, ..] => {
            steps.push(Step::Do(Action::Goto((*chain).to_owned())));
            option.len()
        }
        ["-m" | "--comment", _, ..] | ["-p", "all", ..] => 2,
        ["--tcp-flags", mask, flags, ..] => {
            match tcp_flags(mask).zip(tcp_flags(flags)) {
                Some((mask, flags)) => test(Field::TcpFlags(mask), numbers(flags)),
                None => steps.push(Step::Undecided),
            }
            3
        }
        ["--mark", mark, ..] => {
            match mask(mark) {
                Some((value, mask)) => test(Field::Mark(mask), numbers(value)),
                None => steps.push(Step::Undecided),
            }
            2
        }
        ["--match-set", name, directions, ..] => {
            steps.push(set_step(sets.get(*name), directions, is_negated));
            3
        }
        ["--icmp-type", _, ..] => {
            steps.push(Step::Never);
            2
        }
        // Without a field, this is an option of another extension. Its arguments follow.
        [option, rest @ ..] => {
            let found = rest
                .first()
                .and_then(|argument| field_test(option, argument));
            let Some((field, elements)) = found else {
                steps.push(Step::Undecided);
                return 1;
            };
            test(field, elements);
            2
        }
        [] => 0,
    }
}

/// Returns the field that an option tests, and the elements with which it is compared.
fn field_test(option: &str, argument: &str) -> Option<(Field, Vec<Element>)> {
    let names = || vec![Element::Name(argument.to_owned())];
    Some(match option {
        "-i" => (Field::InputInterface, interface(argument)),
        "-o" => (Field::OutputInterface, interface(argument)),
        "-p" => (Field::Protocol(None), vec![number_or_name(argument)]),
        "-s" | "--src-range" => (Field::Source(None), list(argument, addresses)),
        "-d" | "--dst-range" => (Field::Destination(None), list(argument, addresses)),
        "--sport" | "--sports" => (Field::SourcePort(None), list(argument, port_range)),
        "--dport" | "--dports" => (Field::DestinationPort(None), list(argument, port_range)),
        // SNAT and DNAT are states of the translation.
        "--state" | "--ctstate" => {
            let state =
                |state: &str| (!state.ends_with("NAT")).then(|| Element::Name(state.to_owned()));
            (Field::ConnectionState, list(argument, state))
        }
        // The code of neighbor discovery is 0.
        "--icmpv6-type" => {
            let kind = argument.strip_suffix("/0").unwrap_or(argument);
            (Field::Icmpv6Type, vec![number_or_name(kind)])
        }
        "--hl-eq" => (Field::HopLimit, vec![number_or_name(argument)]),
        "--ctdir" => (Field::ConnectionDirection, names()),
        "--src-type" => (Field::SourceType, names()),
        "--dst-type" => (Field::DestinationType, names()),
        "--pkt-type" => (Field::PacketType, names()),
        _ => return None,
    })
}

fn numbers(number: u32) -> Vec<Element> {
    vec![Element::Numbers(number.into(), number.into())]
}

/// Converts the name of an interface. iptables writes the wildcard as `+`.
fn interface(name: &str) -> Vec<Element> {
    let name = name
        .strip_suffix('+')
        .map_or_else(|| name.to_owned(), |prefix| format!("{prefix}*"));
    vec![Element::Name(name)]
}

fn target_steps(steps: &mut Vec<Step>, target: &str, options: &[&str]) {
    match (target, options) {
        // The translation of the source does not change where the packet goes.
        ("ACCEPT" | "SNAT" | "MASQUERADE", _) => steps.push(Step::Do(Action::Accept)),
        ("DROP" | "REJECT", _) => steps.push(Step::Do(Action::Drop)),
        ("RETURN", _) => steps.push(Step::Do(Action::Return)),
        ("NOTRACK", _) | ("CT", ["--notrack", ..]) => steps.push(Step::DisableTracking),
        ("CT", _) => {}
        ("MARK", ["--set-xmark", mark, ..]) => {
            steps.push(Step::SetMark(mask(mark).map(|(value, mask)| (mask, value))));
        }
        ("MARK", _) => steps.push(Step::SetMark(None)),
        ("DNAT" | "REDIRECT" | "NFQUEUE" | "TPROXY" | "SYNPROXY" | "NETMAP" | "CLUSTERIP", _) => {
            steps.push(Step::Do(Action::Other));
        }
        (target, _) if CONTINUING_TARGETS.contains(&target) => {}
        // An unknown chain is reported as a rule that cannot be evaluated.
        (chain, _) => steps.push(Step::Do(Action::Jump(chain.to_owned()))),
    }
}

fn set_step(set: Option<&IpSet>, directions: &str, is_negated: bool) -> Step {
    let Some(set) = set else {
        return Step::Undecided;
    };
    let directions: Vec<&str> = directions.split(',').collect();
    if directions.len() < set.dimensions.len() {
        return Step::Undecided;
    }
    let fields = set
        .dimensions
        .iter()
        .zip(directions)
        .map(|(dimension, direction)| match (dimension, direction) {
            (Dimension::Address, "src") => Field::Source(None),
            (Dimension::Address, "dst") => Field::Destination(None),
            (Dimension::Port, "src") => Field::SourcePort(None),
            (Dimension::Port, "dst") => Field::DestinationPort(None),
            (Dimension::Interface, "src") => Field::InputInterface,
            (Dimension::Interface, "dst") => Field::OutputInterface,
            _ => Field::Unknown,
        });
    Step::Test(Test {
        fields: fields.collect(),
        is_negated,
        elements: set.elements.clone(),
    })
}

/// Converts the elements of a list that is separated by commas.
fn list(text: &str, element: impl Fn(&str) -> Option<Element>) -> Vec<Element> {
    text.split(',')
        .map(|one| element(one).unwrap_or(Element::Unknown))
        .collect()
}

fn port_range(text: &str) -> Option<Element> {
    let (first, last) = text.split_once(':').unwrap_or((text, text));
    Some(Element::Numbers(first.parse().ok()?, last.parse().ok()?))
}

fn number_or_name(text: &str) -> Element {
    text.parse().map_or_else(
        |_| Element::Name(text.to_owned()),
        |number| Element::Numbers(number, number),
    )
}

/// Parses a value with an optional mask, such as `0x10/0xff`.
fn mask(text: &str) -> Option<(u32, u32)> {
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u32::MAX)),
    }
}

fn tcp_flags(text: &str) -> Option<u32> {
    match text {
        "NONE" => Some(0),
        "ALL" => Some(0x3f),
        text => text
            .split(',')
            .map(tcp_flag)
            .try_fold(0, |flags, flag| Some(flags | flag?)),
    }
}

/// Splits a rule into words. A quoted text is one word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                let end = closing_quote(quoted);
                (&quoted[..end], quoted.get(end + 1..).unwrap_or_default())
            }
            None => rest.split_once(' ').unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// Returns the position of the quote that ends a quoted text, skipping escaped ones.
fn closing_quote(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !is_escaped => return at,
            '\\' => is_escaped = !is_escaped,
            _ => is_escaped = false,
        }
    }
    text.len()
}
