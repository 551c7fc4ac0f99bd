//! Rules printed by `nft -j list ruleset`.
//!
//! The crate `nftables` has the types of statements and expressions. Each of them is decoded alone,
//! because a version of nft that is newer than the crate prints keys that the crate rejects, and
//! one of these must not hide the rest of the ruleset. What cannot be decoded is a condition that
//! cannot be decided.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
use nftables::expr::{
    BinaryOperation, Expression, FibFlag, FibResult, Meta, MetaKey, NamedExpression, Payload,
    SetItem, Verdict,
};
use nftables::stmt::{Match, Operator, Statement};
use serde_json::Value as Json;

use super::packet::{Element, Family, Field, Protocol, Test};
use super::ruleset::{Action, Base, Chain, Hook, Rule, Step, Table};

/// Elements of sets and maps, by table and name. Sets have no actions.
type Sets = HashMap<(String, String), Vec<(Element, Action)>>;

/// Converts the output of `nft -j list ruleset`. `text` is the output of `nft -a list ruleset`, for
/// the texts of the rules.
pub(super) fn parse(json: &str, text: &str) -> Result<Vec<Table>, String> {
    let document: Json = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let objects = document["nftables"]
        .as_array()
        .ok_or("the key `nftables` is missing")?;
    let all = |kind: &'static str| objects.iter().filter_map(move |object| object.get(kind));
    let mut tables: BTreeMap<String, Table> = BTreeMap::new();
    for chain in all("chain") {
        let family = match chain["family"].as_str() {
            Some("ip") => Some(Family::V4),
            Some("ip6") => Some(Family::V6),
            Some("inet" | "netdev") => None,
            // Bridges and ARP.
            _ => continue,
        };
        let name = table_name(chain);
        let table = tables.entry(name.clone()).or_insert_with(|| Table {
            name,
            family,
            chains: BTreeMap::new(),
        });
        let entry = Chain {
            base: base(chain),
            rules: Vec::new(),
        };
        table.chains.insert(string(chain, "name"), entry);
    }
    let sets = sets(all("set").chain(all("map")));
    let texts = rule_texts(text);
    for rule in all("rule") {
        let table = table_name(rule);
        let chain = tables
            .get_mut(&table)
            .and_then(|table| table.chains.get_mut(rule["chain"].as_str()?));
        let Some(chain) = chain else { continue };
        let handle = rule["handle"].as_u64().unwrap_or_default();
        let text = texts.get(&(table.as_str(), handle)).map_or_else(
            || format!("rule {handle} in chain {table} {}", string(rule, "chain")),
            |text| (*text).to_owned(),
        );
        let statements = rule["expr"].as_array().map_or(&[][..], Vec::as_slice);
        let mut steps = Vec::new();
        for (at, statement) in statements.iter().enumerate() {
            let is_last = at + 1 == statements.len();
            add_steps(&mut steps, statement, is_last, &sets, &table);
        }
        chain.rules.push(Rule { steps, text });
    }
    Ok(tables.into_values().collect())
}

fn string(object: &Json, key: &str) -> String {
    object[key].as_str().unwrap_or_default().to_owned()
}

fn table_name(object: &Json) -> String {
    format!("{} {}", string(object, "family"), string(object, "table"))
}

fn base(chain: &Json) -> Option<Base> {
    let hook = match chain["hook"].as_str()? {
        "ingress" => Hook::Ingress,
        "prerouting" => Hook::Prerouting,
        "input" => Hook::Input,
        "output" => Hook::Output,
        "postrouting" => Hook::Postrouting,
        "egress" => Hook::Egress,
        _ => return None,
    };
    // nft 1.0.6 does not print the device of a chain.
    let netdevs = match &chain["dev"] {
        Json::String(name) => Some(vec![name.clone()]),
        Json::Array(names) => Some(
            names
                .iter()
                .filter_map(Json::as_str)
                .map(str::to_owned)
                .collect(),
        ),
        _ => None,
    };
    Some(Base {
        hook,
        priority: chain["prio"]
            .as_i64()
            .and_then(|priority| i32::try_from(priority).ok())
            .unwrap_or_default(),
        drops: chain["policy"] == "drop",
        netdevs,
        is_for_netdevs: matches!(hook, Hook::Ingress | Hook::Egress),
    })
}

/// Returns the texts of the rules by table and handle. Handles are unique in a table.
fn rule_texts(text: &str) -> HashMap<(&str, u64), &str> {
    let mut texts = HashMap::new();
    let mut table = "";
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("table ") {
            table = rest.split_once(" {").map_or("", |(name, _)| name);
        } else if let Some((rule, handle)) = line.rsplit_once(" # handle ") {
            if let Ok(handle) = handle.parse() {
                texts.insert((table, handle), rule.trim());
            }
        }
    }
    texts
}

fn sets<'a>(objects: impl Iterator<Item = &'a Json>) -> Sets {
    let mut sets = Sets::new();
    for object in objects {
        let elements = object["elem"].as_array().map_or(&[][..], Vec::as_slice);
        let elements = elements
            .iter()
            .map(|element| match expression(element) {
                Some(Expression::List(pair)) => mapping(&pair),
                Some(element) => (self::element(&element), Action::Continue),
                None => (Element::Unknown, Action::Other),
            })
            .collect();
        sets.insert((table_name(object), string(object, "name")), elements);
    }
    sets
}

fn expression(json: &Json) -> Option<Expression<'static>> {
    serde_json::from_value(json.clone()).ok()
}

/// Converts an element of a verdict map.
fn mapping(pair: &[Expression<'_>]) -> (Element, Action) {
    match pair {
        [key, Expression::Verdict(verdict)] => (element(key), action(verdict)),
        [key, _] => (element(key), Action::Continue),
        _ => (Element::Unknown, Action::Other),
    }
}

fn action(verdict: &Verdict<'_>) -> Action {
    match verdict {
        Verdict::Accept => Action::Accept,
        Verdict::Drop => Action::Drop,
        Verdict::Continue => Action::Continue,
        Verdict::Return => Action::Return,
        Verdict::Jump(to) => Action::Jump(to.target.to_string()),
        Verdict::Goto(to) => Action::Goto(to.target.to_string()),
    }
}

/// Adds the steps of a statement.
fn add_steps(steps: &mut Vec<Step>, json: &Json, is_last: bool, sets: &Sets, table: &str) {
    let key = json
        .as_object()
        .and_then(|object| object.keys().next())
        .map_or("", String::as_str);
    // The arguments of these statements do not matter, and older versions of nft print others.
    let simple = match key {
        // The translation of the source does not change where the packet goes.
        "accept" | "snat" | "masquerade" => Some(Action::Accept),
        "drop" | "reject" => Some(Action::Drop),
        "return" => Some(Action::Return),
        "counter" | "log" | "continue" | "set" | "flow" | "dup" | "last" | "secmark"
        | "ct helper" | "ct timeout" | "ct expectation" => Some(Action::Continue),
        "queue" | "synproxy" | "tproxy" | "dnat" | "redirect" | "fwd" => Some(Action::Other),
        _ => None,
    };
    if let Some(action) = simple {
        steps.push(Step::Do(action));
        return;
    }
    match serde_json::from_value::<Statement<'_>>(json.clone()) {
        Ok(Statement::Jump(to)) => steps.push(Step::Do(Action::Jump(to.target.to_string()))),
        Ok(Statement::Goto(to)) => steps.push(Step::Do(Action::Goto(to.target.to_string()))),
        Ok(Statement::Match(test)) => steps.push(match_step(&test, sets, table)),
        Ok(Statement::VerdictMap(map)) => {
            let entries = match &map.data {
                Expression::Named(NamedExpression::Set(items)) => {
                    items.iter().map(map_item).collect()
                }
                Expression::String(name) => named(sets, table, name)
                    .cloned()
                    .unwrap_or_else(|| vec![(Element::Unknown, Action::Other)]),
                _ => vec![(Element::Unknown, Action::Other)],
            };
            let test = Test {
                fields: fields(&map.key),
                is_negated: false,
                elements: Vec::new(),
            };
            steps.push(Step::Map(test, entries));
        }
        Ok(Statement::Mangle(mangle)) => {
            if is_mark(&mangle.key) {
                steps.push(Step::SetMark(mark(&mangle.value)));
            }
        }
        Ok(Statement::Notrack) => steps.push(Step::DisableTracking),
        // Limits and quotas depend on the traffic. `xt` is an extension of iptables: nft prints
        // only its name.
        _ => {
            steps.push(Step::Undecided);
            if is_last {
                steps.push(Step::Do(Action::Other));
            }
        }
    }
}

fn map_item(item: &SetItem<'_>) -> (Element, Action) {
    match item {
        SetItem::Element(Expression::List(pair)) => mapping(pair),
        SetItem::Mapping(key, Expression::Verdict(verdict)) => (element(key), action(verdict)),
        _ => (Element::Unknown, Action::Other),
    }
}

fn named<'s>(sets: &'s Sets, table: &str, name: &str) -> Option<&'s Vec<(Element, Action)>> {
    sets.get(&(table.to_owned(), name.strip_prefix('@')?.to_owned()))
}

fn match_step(test: &Match<'_>, sets: &Sets, table: &str) -> Step {
    let fields = fields(&test.left);
    let is_negated = matches!(test.op, Operator::NEQ);
    let one = |elements, is_negated| {
        Step::Test(Test {
            fields: fields.clone(),
            is_negated,
            elements,
        })
    };
    if let [Field::TcpFlags(mask)] = fields.as_slice() {
        let Some(flags) = tcp_flags(&test.right) else {
            return Step::Undecided;
        };
        let number = Element::Numbers(flags.into(), flags.into());
        return match test.op {
            Operator::EQ | Operator::NEQ => one(vec![number], is_negated),
            Operator::IN => Step::Test(Test::new(
                Field::TcpFlags(mask & flags),
                true,
                vec![Element::Numbers(0, 0)],
            )),
            _ => Step::Undecided,
        };
    }
    if fields.as_slice() == [Field::ReversePath] {
        let exists = match &test.right {
            Expression::Boolean(exists) => *exists,
            Expression::Number(0) => false,
            _ => return Step::Undecided,
        };
        return one(vec![Element::Name("exists".into())], exists == is_negated);
    }
    if let Expression::Number(number) = test.right {
        let number = u64::from(number);
        let range = match test.op {
            // The crate names `<` GT, and `>` LT.
            Operator::GT => number.checked_sub(1).map(|last| (0, last)),
            Operator::LEQ => Some((0, number)),
            Operator::LT => Some((number + 1, u64::MAX)),
            Operator::GEQ => Some((number, u64::MAX)),
            Operator::EQ | Operator::NEQ | Operator::IN => Some((number, number)),
            _ => return Step::Undecided,
        };
        return match range {
            Some((first, last)) => one(vec![Element::Numbers(first, last)], is_negated),
            None => Step::Never,
        };
    }
    if !matches!(test.op, Operator::EQ | Operator::NEQ | Operator::IN) {
        return Step::Undecided;
    }
    let elements = match &test.right {
        Expression::String(name) if name.starts_with('@') => match named(sets, table, name) {
            Some(set) => set.iter().map(|(element, _)| element.clone()).collect(),
            None => vec![Element::Unknown],
        },
        right => elements(right),
    };
    let is_translation = |element: &Element| matches!(element, Element::Name(name) if name == "snat" || name == "dnat");
    if fields.as_slice() == [Field::Translation] && !elements.iter().all(is_translation) {
        return Step::Undecided;
    }
    one(elements, is_negated)
}

/// Returns the fields of the left side of a comparison.
fn fields(expression: &Expression<'_>) -> Vec<Field> {
    match expression {
        Expression::Named(NamedExpression::Concat(parts)) => parts.iter().map(field).collect(),
        expression => vec![field(expression)],
    }
}

fn field(expression: &Expression<'_>) -> Field {
    match expression {
        Expression::Named(NamedExpression::Payload(Payload::PayloadField(payload))) => {
            payload_field(&payload.protocol, &payload.field)
        }
        Expression::Named(NamedExpression::Meta(meta)) => match meta.key {
            MetaKey::Iif | MetaKey::Iifname => Field::InputInterface,
            MetaKey::Oif | MetaKey::Oifname => Field::OutputInterface,
            MetaKey::L4proto => Field::Protocol(None),
            MetaKey::Nfproto | MetaKey::Protocol => Field::Family,
            MetaKey::Mark => Field::Mark(u32::MAX),
            MetaKey::Pkttype => Field::PacketType,
            _ => Field::Unknown,
        },
        Expression::Named(NamedExpression::CT(ct)) if ct.dir.is_none() => match &*ct.key {
            "state" => Field::ConnectionState,
            "status" => Field::Translation,
            "direction" => Field::ConnectionDirection,
            _ => Field::Unknown,
        },
        Expression::Named(NamedExpression::Fib(fib)) => {
            let has = |flag| fib.flags.contains(&flag);
            match fib.result {
                FibResult::Type if has(FibFlag::Daddr) && !has(FibFlag::Saddr) => {
                    Field::DestinationType
                }
                FibResult::Type if has(FibFlag::Saddr) && !has(FibFlag::Daddr) => Field::SourceType,
                FibResult::Oif if has(FibFlag::Saddr) && !has(FibFlag::Daddr) => Field::ReversePath,
                _ => Field::Unknown,
            }
        }
        Expression::BinaryOperation(operation) => match &**operation {
            BinaryOperation::AND(left, Expression::Number(mask)) if is_mark(left) => {
                Field::Mark(*mask)
            }
            BinaryOperation::AND(left, mask) => match (field(left), tcp_flags(mask)) {
                (Field::TcpFlags(_), Some(mask)) => Field::TcpFlags(mask),
                _ => Field::Unknown,
            },
            _ => Field::Unknown,
        },
        _ => Field::Unknown,
    }
}

fn payload_field(protocol: &str, field: &str) -> Field {
    let family = match protocol {
        "ip" => Some(Family::V4),
        "ip6" => Some(Family::V6),
        _ => None,
    };
    let transport = match protocol {
        "tcp" => Some(Protocol::Tcp),
        "udp" => Some(Protocol::Udp),
        _ => None,
    };
    match (protocol, field) {
        ("ip" | "ip6", "saddr") => Field::Source(family),
        ("ip" | "ip6", "daddr") => Field::Destination(family),
        ("ip", "protocol") | ("ip6", "nexthdr") => Field::Protocol(family),
        ("tcp" | "udp" | "th", "sport") => Field::SourcePort(transport),
        ("tcp" | "udp" | "th", "dport") => Field::DestinationPort(transport),
        ("tcp", "flags") => Field::TcpFlags(0xff),
        ("ip6", "hoplimit") => Field::HopLimit,
        ("icmpv6", "type") => Field::Icmpv6Type,
        ("icmpv6", _) => Field::Icmpv6Header,
        ("icmp" | "igmp" | "sctp" | "dccp" | "udplite" | "esp" | "ah" | "comp" | "arp", _) => {
            Field::Absent
        }
        _ => match (family, transport) {
            (Some(family), _) => Field::NetworkHeader(family),
            (_, Some(protocol)) => Field::TransportHeader(protocol),
            _ => Field::Unknown,
        },
    }
}

fn is_mark(expression: &Expression<'_>) -> bool {
    let mark = Meta { key: MetaKey::Mark };
    matches!(expression, Expression::Named(NamedExpression::Meta(meta)) if *meta == mark)
}

/// Returns the bits of the mark that a `meta mark set` clears, and those that it inverts then.
fn mark(value: &Expression<'_>) -> Option<(u32, u32)> {
    let Expression::BinaryOperation(operation) = value else {
        return match value {
            Expression::Number(number) => Some((u32::MAX, *number)),
            value if is_mark(value) => Some((0, 0)),
            _ => None,
        };
    };
    match &**operation {
        BinaryOperation::AND(left, Expression::Number(mask)) => {
            let (clear, set) = mark(left)?;
            Some((clear | !mask, set & mask))
        }
        BinaryOperation::XOR(left, Expression::Number(bits)) => {
            let (clear, set) = mark(left)?;
            Some((clear, set ^ bits))
        }
        BinaryOperation::OR(parts) => match parts.as_slice() {
            [left, Expression::Number(bits)] => {
                let (clear, set) = mark(left)?;
                Some((clear | bits, set | bits))
            }
            _ => None,
        },
        _ => None,
    }
}

fn elements(expression: &Expression<'_>) -> Vec<Element> {
    match expression {
        Expression::List(list) => list.iter().map(element).collect(),
        Expression::Named(NamedExpression::Set(items)) => items
            .iter()
            .map(|item| match item {
                SetItem::Element(item) => element(item),
                _ => Element::Unknown,
            })
            .collect(),
        expression => vec![element(expression)],
    }
}

fn element(expression: &Expression<'_>) -> Element {
    match expression {
        Expression::String(text) => match text.parse::<IpAddr>() {
            _ if text == "*" => Element::Any,
            Ok(ip) => Element::Network(ip.into()),
            Err(_) => Element::Name(text.to_string()),
        },
        Expression::Number(number) => Element::Numbers((*number).into(), (*number).into()),
        Expression::Range(range) => match [element(&range.range[0]), element(&range.range[1])] {
            [Element::Numbers(first, _), Element::Numbers(_, last)] => {
                Element::Numbers(first, last)
            }
            [Element::Network(first), Element::Network(last)] => {
                Element::Addresses(first.addr(), last.addr())
            }
            _ => Element::Unknown,
        },
        Expression::Named(NamedExpression::Prefix(prefix)) => {
            let length = u8::try_from(prefix.len).ok();
            match (element(&prefix.addr), length) {
                (Element::Network(address), Some(length)) => {
                    IpNet::new(address.addr(), length).map_or(Element::Unknown, Element::Network)
                }
                _ => Element::Unknown,
            }
        }
        Expression::Named(NamedExpression::Concat(parts)) => {
            Element::Tuple(parts.iter().map(element).collect())
        }
        Expression::Named(NamedExpression::Elem(inner)) => element(&inner.val),
        _ => Element::Unknown,
    }
}

/// Returns the bits of TCP flags: one flag, a list, or a combination with `|`.
fn tcp_flags(expression: &Expression<'_>) -> Option<u32> {
    let all = |parts: &[Expression<'_>]| {
        parts
            .iter()
            .map(tcp_flags)
            .try_fold(0, |flags, part| Some(flags | part?))
    };
    match expression {
        Expression::Number(number) => Some(*number),
        Expression::String(name) => tcp_flag(name),
        Expression::List(list) => all(list),
        Expression::BinaryOperation(operation) => match &**operation {
            BinaryOperation::OR(parts) => all(parts),
            _ => None,
        },
        _ => None,
    }
}

/// Returns the bit of a TCP flag.
pub(super) fn tcp_flag(name: &str) -> Option<u32> {
    let flags = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
    let at = flags
        .iter()
        .position(|flag| flag.eq_ignore_ascii_case(name))?;
    Some(1 << at)
}
