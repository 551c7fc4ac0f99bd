//! What a packet filter does with a packet: the rules as `nft list ruleset` or `iptables-save`
//! print them, walked through.
//!
//! Only what matters here is understood: protocol, destination port, the loopback interface and
//! connection state. A rule with another condition may apply or not: if it accepts, the answer is
//! [`Verdict::Some`].

mod iptables;
mod nft;

pub use iptables::iptables;
pub use nft::nft;

/// The first packet of a conversation, coming from another host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// `udp` or `tcp`.
    pub protocol: &'static str,
    /// The port that it goes to.
    pub port: u16,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It comes in.
    Accept,
    /// It comes in under a condition that is not judged here: this rule.
    Some(String),
    /// It is kept out.
    Drop {
        /// By this rule.
        rule: String,
        /// Of the chain that what comes in enters by: `inet filter input`.
        chain: String,
    },
}

/// Whether a rule's condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Yes,
    No,
    Perhaps,
}

impl Condition {
    fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::No, _) | (_, Self::No) => Self::No,
            (Self::Yes, Self::Yes) => Self::Yes,
            _ => Self::Perhaps,
        }
    }

    fn from_bool(holds: bool) -> Self {
        if holds { Self::Yes } else { Self::No }
    }
}

/// What a rule does.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    Nothing,
}

/// A rule, as it concerns one packet.
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
    /// It sees what comes in.
    input: bool,
    /// What is left over is dropped.
    drops: bool,
    rules: Vec<Rule>,
}

/// Chains that can jump to each other.
#[derive(Clone, Debug, Default)]
struct Table {
    name: String,
    chains: Vec<Chain>,
}

/// How a walk through a chain ended.
enum ChainResult {
    Accept,
    /// By this rule.
    Drop(String),
    Through,
}

/// Chains nest no deeper in the kernel.
const DEPTH: usize = 16;
/// So that rules that jump around cannot keep the walk busy for ever.
const STEPS: usize = 100_000;

impl Table {
    fn chain(&self, name: &str) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.name == name)
    }

    /// What all input chains together do.
    fn verdict(&self) -> Verdict {
        let mut worst = Verdict::Accept;
        for chain in self.chains.iter().filter(|chain| chain.input) {
            let mut walk = Traversal {
                table: self,
                maybe: None,
                steps: 0,
            };
            let entered = format!("{} {}", self.name, chain.name);
            let verdict = match (walk.chain(chain, 0), walk.maybe) {
                (ChainResult::Accept, _) => Verdict::Accept,
                (ChainResult::Through, _) if !chain.drops => Verdict::Accept,
                (ChainResult::Drop(_) | ChainResult::Through, Some(rule)) => Verdict::Some(rule),
                (ChainResult::Drop(rule), None) => Verdict::Drop {
                    rule,
                    chain: entered,
                },
                (ChainResult::Through, None) => Verdict::Drop {
                    rule: format!("the policy of chain {entered}"),
                    chain: entered,
                },
            };
            worst = worse(worst, verdict);
        }
        worst
    }
}

/// The worse of two: a packet has to come through both.
pub(super) fn worse(a: Verdict, b: Verdict) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Accept => 0,
        Verdict::Some(_) => 1,
        Verdict::Drop { .. } => 2,
    };
    if rank(&b) > rank(&a) { b } else { a }
}

fn verdict_of(tables: &[Table]) -> Verdict {
    tables
        .iter()
        .map(Table::verdict)
        .fold(Verdict::Accept, worse)
}

struct Traversal<'a> {
    table: &'a Table,
    /// The first rule that accepts under a condition.
    maybe: Option<String>,
    steps: usize,
}

impl Traversal<'_> {
    fn chain(&mut self, chain: &Chain, depth: usize) -> ChainResult {
        for rule in &chain.rules {
            self.steps += 1;
            if self.steps > STEPS {
                break;
            }
            if rule.holds == Condition::No {
                continue;
            }
            let sure = rule.holds == Condition::Yes;
            match &rule.action {
                Action::Accept if sure => return ChainResult::Accept,
                Action::Accept => {
                    self.maybe.get_or_insert_with(|| rule.text.clone());
                }
                Action::Drop if sure => return ChainResult::Drop(rule.text.clone()),
                Action::Return if sure => return ChainResult::Through,
                // What drops perhaps keeps some out: a list of the unwanted.
                Action::Nothing | Action::Drop | Action::Return => {}
                Action::Jump(to) | Action::Goto(to) => {
                    let Some(next) = self.table.chain(to).filter(|_| depth < DEPTH) else {
                        continue;
                    };
                    match self.chain(next, depth + 1) {
                        end @ (ChainResult::Accept | ChainResult::Drop(_)) if sure => return end,
                        ChainResult::Accept => {
                            self.maybe.get_or_insert_with(|| rule.text.clone());
                        }
                        ChainResult::Through if sure && matches!(rule.action, Action::Goto(_)) => {
                            return ChainResult::Through;
                        }
                        ChainResult::Drop(_) | ChainResult::Through => {}
                    }
                }
            }
        }
        ChainResult::Through
    }
}

/// Whether a port is in `4791`, `4790-4792`, `4790:4792`, or is that service's name; none: not
/// understood.
fn port_in(port: u16, text: &str) -> Option<bool> {
    let text = text.trim_matches(',');
    if let Some((first, last)) = text.split_once(['-', ':']) {
        return Some((first.parse::<u16>().ok()?..=last.parse::<u16>().ok()?).contains(&port));
    }
    match text.parse::<u16>() {
        Ok(number) => Some(number == port),
        // A service's name: none is used for the ports that are asked about.
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
