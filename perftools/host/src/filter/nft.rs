//! Rules printed by `nft -j list ruleset` (libnftables-json(5)).
//!
//! Expressions are read where a rule uses them, because newer versions of nft print more of them,
//! and one of these must not hide the rest of the ruleset. What cannot be read is a condition that
//! cannot be decided.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use ipnet::IpNet;
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
            .map(|element| match element {
                Json::Array(pair) => mapping(pair),
                element => (self::element(element), Action::Continue),
            })
            .collect();
        sets.insert((table_name(object), string(object, "name")), elements);
    }
    sets
}

/// Returns the only key of an object, and its value.
fn entry(json: &Json) -> (&str, &Json) {
    json.as_object()
        .and_then(|object| object.iter().next())
        .map_or(("", &Json::Null), |(key, value)| (key.as_str(), value))
}

/// Converts an element of a map.
fn mapping(pair: &[Json]) -> (Element, Action) {
    let [key, value] = pair else {
        return (Element::Unknown, Action::Other);
    };
    let target = |value| string(value, "target");
    let action = match entry(value) {
        ("accept", _) => Action::Accept,
        ("drop", _) => Action::Drop,
        ("return", _) => Action::Return,
        ("jump", to) => Action::Jump(target(to)),
        ("goto", to) => Action::Goto(target(to)),
        ("continue", _) => Action::Continue,
        _ => Action::Other,
    };
    (element(key), action)
}

/// Adds the steps of a statement.
fn add_steps(steps: &mut Vec<Step>, json: &Json, is_last: bool, sets: &Sets, table: &str) {
    let (key, value) = entry(json);
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
    match key {
        "jump" => steps.push(Step::Do(Action::Jump(string(value, "target")))),
        "goto" => steps.push(Step::Do(Action::Goto(string(value, "target")))),
        "match" => steps.push(match_step(value, sets, table)),
        "vmap" => {
            let unknown = || vec![(Element::Unknown, Action::Other)];
            let entries = match (&value["data"], entry(&value["data"])) {
                (_, ("set", Json::Array(items))) => items
                    .iter()
                    .map(|item| mapping(item.as_array().map_or(&[], Vec::as_slice)))
                    .collect(),
                (Json::String(name), _) => {
                    named(sets, table, name).cloned().unwrap_or_else(unknown)
                }
                _ => unknown(),
            };
            let test = Test {
                fields: fields(&value["key"]),
                is_negated: false,
                elements: Vec::new(),
            };
            steps.push(Step::Map(test, entries));
        }
        "mangle" => {
            if is_mark(&value["key"]) {
                steps.push(Step::SetMark(mark(&value["value"])));
            }
        }
        "notrack" => steps.push(Step::DisableTracking),
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

fn named<'s>(sets: &'s Sets, table: &str, name: &str) -> Option<&'s Vec<(Element, Action)>> {
    sets.get(&(table.to_owned(), name.strip_prefix('@')?.to_owned()))
}

fn match_step(test: &Json, sets: &Sets, table: &str) -> Step {
    let (fields, right) = (fields(&test["left"]), &test["right"]);
    let operator = test["op"].as_str().unwrap_or_default();
    let is_negated = operator == "!=";
    let one = |elements, is_negated| {
        Step::Test(Test {
            fields: fields.clone(),
            is_negated,
            elements,
        })
    };
    if let [Field::TcpFlags(mask)] = fields.as_slice() {
        let Some(flags) = tcp_flags(right) else {
            return Step::Undecided;
        };
        let number = Element::Numbers(flags.into(), flags.into());
        return match operator {
            "==" | "!=" => one(vec![number], is_negated),
            "in" => Step::Test(Test::new(
                Field::TcpFlags(mask & flags),
                true,
                vec![Element::Numbers(0, 0)],
            )),
            _ => Step::Undecided,
        };
    }
    if fields.as_slice() == [Field::ReversePath] {
        let exists = match (right.as_bool(), right.as_u64()) {
            (Some(exists), _) => exists,
            (_, Some(0)) => false,
            _ => return Step::Undecided,
        };
        return one(vec![Element::Name("exists".into())], exists == is_negated);
    }
    if let Some(number) = right.as_u64() {
        let range = match operator {
            "<" => number.checked_sub(1).map(|last| (0, last)),
            "<=" => Some((0, number)),
            ">" => number.checked_add(1).map(|first| (first, u64::MAX)),
            ">=" => Some((number, u64::MAX)),
            "==" | "!=" | "in" => Some((number, number)),
            _ => return Step::Undecided,
        };
        return match range {
            Some((first, last)) => one(vec![Element::Numbers(first, last)], is_negated),
            None => Step::Never,
        };
    }
    if !matches!(operator, "==" | "!=" | "in") {
        return Step::Undecided;
    }
    let elements = match right {
        Json::String(name) if name.starts_with('@') => match named(sets, table, name) {
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
fn fields(expression: &Json) -> Vec<Field> {
    match entry(expression) {
        ("concat", Json::Array(parts)) => parts.iter().map(field).collect(),
        _ => vec![field(expression)],
    }
}

fn field(expression: &Json) -> Field {
    let (kind, value) = entry(expression);
    match kind {
        "payload" => match (value["protocol"].as_str(), value["field"].as_str()) {
            (Some(protocol), Some(field)) => payload_field(protocol, field),
            _ => Field::Unknown,
        },
        "meta" => match value["key"].as_str() {
            Some("iif" | "iifname") => Field::InputInterface,
            Some("oif" | "oifname") => Field::OutputInterface,
            Some("l4proto") => Field::Protocol(None),
            Some("nfproto" | "protocol") => Field::Family,
            Some("mark") => Field::Mark(u32::MAX),
            Some("pkttype") => Field::PacketType,
            _ => Field::Unknown,
        },
        "ct" if value["dir"].is_null() => match value["key"].as_str() {
            Some("state") => Field::ConnectionState,
            Some("status") => Field::Translation,
            Some("direction") => Field::ConnectionDirection,
            _ => Field::Unknown,
        },
        "fib" => {
            let flags = &value["flags"];
            let has = |flag| {
                flags == flag
                    || flags
                        .as_array()
                        .is_some_and(|all| all.iter().any(|one| one == flag))
            };
            match (value["result"].as_str(), has("saddr"), has("daddr")) {
                (Some("type"), false, true) => Field::DestinationType,
                (Some("type"), true, false) => Field::SourceType,
                (Some("oif"), true, false) => Field::ReversePath,
                _ => Field::Unknown,
            }
        }
        "&" => match (field(&value[0]), number(&value[1]), tcp_flags(&value[1])) {
            (Field::Mark(u32::MAX), Some(mask), _) => Field::Mark(mask),
            (Field::TcpFlags(_), _, Some(mask)) => Field::TcpFlags(mask),
            _ => Field::Unknown,
        },
        _ => Field::Unknown,
    }
}

fn number(expression: &Json) -> Option<u32> {
    expression.as_u64()?.try_into().ok()
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

fn is_mark(expression: &Json) -> bool {
    matches!(entry(expression), ("meta", meta) if meta["key"] == "mark")
}

/// Returns the bits of the mark that a `meta mark set` clears, and those that it inverts then.
fn mark(value: &Json) -> Option<(u32, u32)> {
    if is_mark(value) {
        return Some((0, 0));
    }
    if let Some(number) = number(value) {
        return Some((u32::MAX, number));
    }
    let (operator, Json::Array(operands)) = entry(value) else {
        return None;
    };
    let [left, right] = operands.as_slice() else {
        return None;
    };
    let ((clear, set), bits) = (mark(left)?, number(right)?);
    match operator {
        "&" => Some((clear | !bits, set & bits)),
        "^" => Some((clear, set ^ bits)),
        "|" => Some((clear | bits, set | bits)),
        _ => None,
    }
}

fn elements(expression: &Json) -> Vec<Element> {
    match (expression, entry(expression)) {
        (Json::Array(list), _) | (_, ("set", Json::Array(list))) => {
            list.iter().map(element).collect()
        }
        _ => vec![element(expression)],
    }
}

fn element(expression: &Json) -> Element {
    match expression {
        Json::String(text) if text == "*" => return Element::Any,
        Json::String(text) => {
            return text.parse::<IpAddr>().map_or_else(
                |_| Element::Name(text.clone()),
                |ip| Element::Network(ip.into()),
            );
        }
        Json::Number(_) => {
            return expression
                .as_u64()
                .map_or(Element::Unknown, |number| Element::Numbers(number, number));
        }
        _ => {}
    }
    let (kind, value) = entry(expression);
    match (kind, value) {
        ("range", Json::Array(ends)) => {
            let [first, last] = ends.as_slice() else {
                return Element::Unknown;
            };
            match (element(first), element(last)) {
                (Element::Numbers(first, _), Element::Numbers(_, last)) => {
                    Element::Numbers(first, last)
                }
                (Element::Network(first), Element::Network(last)) => {
                    Element::Addresses(first.addr(), last.addr())
                }
                _ => Element::Unknown,
            }
        }
        ("prefix", prefix) => {
            let length = prefix["len"]
                .as_u64()
                .and_then(|length| u8::try_from(length).ok());
            match (element(&prefix["addr"]), length) {
                (Element::Network(address), Some(length)) => {
                    IpNet::new(address.addr(), length).map_or(Element::Unknown, Element::Network)
                }
                _ => Element::Unknown,
            }
        }
        ("concat", Json::Array(parts)) => Element::Tuple(parts.iter().map(element).collect()),
        ("elem", inner) => element(&inner["val"]),
        _ => Element::Unknown,
    }
}

/// Returns the bits of TCP flags: one flag, a list, or a combination with `|`.
fn tcp_flags(expression: &Json) -> Option<u32> {
    match (expression, entry(expression)) {
        (Json::Number(_), _) => number(expression),
        (Json::String(name), _) => tcp_flag(name),
        (Json::Array(parts), _) | (_, ("|", Json::Array(parts))) => parts
            .iter()
            .map(tcp_flags)
            .try_fold(0, |flags, part| Some(flags | part?)),
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
