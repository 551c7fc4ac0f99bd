//! Evaluates the rules of a packet filter, as printed by `nft list ruleset` or `iptables-save`, for
//! one packet.
//!
//! Only conditions on the protocol, the destination port, the loopback interface and the connection
//! state are evaluated. A rule with any other condition may or may not match. If such a rule
//! accepts the packet, the result is [`Verdict::Conditional`].

mod iptables;
mod nft;

pub use iptables::iptables;
pub use nft::nft;

/// The first packet of a connection from another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// `udp` or `tcp`.
    pub protocol: &'static str,
    /// The destination port.
    pub port: u16,
}

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is accepted.
    Accept,
    /// This rule accepts the packet under a condition that is not evaluated here.
    Conditional(String),
    /// The packet is dropped or rejected.
    Drop {
        /// The rule that drops the packet.
        rule: String,
        /// The input chain in which the evaluation began, for example `inet filter input`.
        chain: String,
    },
}

/// The result of evaluating the condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Yes,
    No,
    Unknown,
}

impl Condition {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Unknown,
        }
    }

    fn from_bool(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    Nothing,
}

/// A rule, evaluated for one packet.
#[derive(Clone, Debug)]
struct Rule {
    holds: Condition,
    action: Action,
    text: String,
}

/// A chain.
#[derive(Clone, Debug, Default)]
struct Chain {
    name: String,
    /// The chain filters incoming packets.
    input: bool,
    /// The policy of the chain is to drop.
    drops: bool,
    rules: Vec<Rule>,
}

/// Chains that can jump to each other.
#[derive(Clone, Debug, Default)]
struct Table {
    name: String,
    chains: Vec<Chain>,
}

/// The result of evaluating a chain.
enum ChainResult {
    Accept,
    /// Dropped by this rule.
    Drop(String),
    /// No rule decided.
    Undecided,
}

/// Maximum nesting of chains in the kernel.
const MAX_DEPTH: usize = 16;
/// Maximum number of rules that are evaluated, so that loops of jumps end.
const MAX_STEPS: usize = 100_000;

impl Table {
    fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// Returns the combined result of all input chains.
    fn verdict(&self) -> Verdict {
        let mut strictest = Verdict::Accept;
        for chain in self.chains.iter().filter(|chain| chain.input) {
            let mut traversal = Traversal {
                table: self,
                conditional: None,
                steps: 0,
            };
            let name = format!("{} {}", self.name, chain.name);
            let verdict = match (traversal.chain(chain, 0), traversal.conditional) {
                (ChainResult::Accept, _) => Verdict::Accept,
                (ChainResult::Undecided, _) if !chain.drops => Verdict::Accept,
                (ChainResult::Drop(_) | ChainResult::Undecided, Some(rule)) => {
                    Verdict::Conditional(rule)
                }
                (ChainResult::Drop(rule), None) => Verdict::Drop { rule, chain: name },
                (ChainResult::Undecided, None) => Verdict::Drop {
                    rule: format!("the policy of chain {name}"),
                    chain: name,
                },
            };
            strictest = stricter(strictest, verdict);
        }
        strictest
    }
}

/// Returns the stricter of two results, because the packet must pass both.
pub(super) fn stricter(a: Verdict, b: Verdict) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Accept => 0,
        Verdict::Conditional(_) => 1,
        Verdict::Drop { .. } => 2,
    };
    if rank(&b) > rank(&a) { b } else { a }
}

fn combined_verdict(tables: &[Table]) -> Verdict {
    tables
        .iter()
        .map(Table::verdict)
        .fold(Verdict::Accept, stricter)
}

struct Traversal<'a> {
    table: &'a Table,
    /// The first rule that accepts under a condition that is not evaluated.
    conditional: Option<String>,
    steps: usize,
}

impl Traversal<'_> {
    fn chain(&mut self, chain: &Chain, depth: usize) -> ChainResult {
        for rule in &chain.rules {
            self.steps += 1;
            if self.steps > MAX_STEPS {
                break;
            }
            if rule.holds == Condition::No {
                continue;
            }
            let certain = rule.holds == Condition::Yes;
            match &rule.action {
                Action::Accept if certain => return ChainResult::Accept,
                Action::Accept => {
                    self.conditional.get_or_insert_with(|| rule.text.clone());
                }
                Action::Drop if certain => return ChainResult::Drop(rule.text.clone()),
                Action::Return if certain => return ChainResult::Undecided,
                // A conditional drop is a block list for some sources, not for all.
                Action::Nothing | Action::Drop | Action::Return => {}
                Action::Jump(to) | Action::Goto(to) => {
                    let Some(next) = self.table.chain(to).filter(|_| depth < MAX_DEPTH) else {
                        continue;
                    };
                    match self.chain(next, depth + 1) {
                        result @ (ChainResult::Accept | ChainResult::Drop(_)) if certain => {
                            return result;
                        }
                        ChainResult::Accept => {
                            self.conditional.get_or_insert_with(|| rule.text.clone());
                        }
                        ChainResult::Undecided
                            if certain && matches!(rule.action, Action::Goto(_)) =>
                        {
                            return ChainResult::Undecided;
                        }
                        ChainResult::Drop(_) | ChainResult::Undecided => {}
                    }
                }
            }
        }
        ChainResult::Undecided
    }
}

/// Returns whether `text` contains the port. `text` is a port (`4791`), a range (`4790-4792` or
/// `4790:4792`) or the name of a service. Returns `None` for any other text.
fn port_in(port: u16, text: &str) -> Option<bool> {
    let text = text.trim_matches(',');
    if let Some((first, last)) = text.split_once(['-', ':']) {
        return Some((first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?).contains(&port));
    }
    match text.parse::<u16>() {
        Ok(number) => Some(number == port),
        // A service name. The ports that are checked have none.
        Err(_)
            if text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !text.is_empty() =>
        {
            Some(false)
        }
        Err(_) => None,
    }
}
