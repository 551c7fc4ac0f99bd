//! Chains of rules, and their evaluation for one packet.
//!
//! A condition that cannot be decided has both results. The evaluation therefore follows both
//! branches, and returns every outcome that is possible.

use std::collections::{BTreeMap, HashMap};

use super::packet::{Condition, Direction, Element, Family, Packet, PacketState, Test};

/// The point in the kernel at which a base chain is called, in the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Hook {
    Ingress,
    Prerouting,
    Input,
    Output,
    Postrouting,
    Egress,
}

impl Hook {
    /// Returns the direction of the packets that pass this hook. Postrouting and egress are passed
    /// by packets from this host only, because forwarded packets are not evaluated.
    fn direction(self) -> Direction {
        match self {
            Self::Ingress | Self::Prerouting | Self::Input => Direction::Input,
            Self::Output | Self::Postrouting | Self::Egress => Direction::Output,
        }
    }
}

/// The attributes of a base chain.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) hook: Hook,
    pub(super) priority: i32,
    /// The policy is to drop.
    pub(super) drops: bool,
    /// The network interfaces of a chain in the family `netdev`. `None` if they are not known.
    pub(super) netdevs: Option<Vec<String>>,
    /// The chain is limited to network interfaces.
    pub(super) is_for_netdevs: bool,
}

/// The action of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Accept,
    Drop,
    Return,
    Jump(String),
    Goto(String),
    /// Something that is not evaluated: a program decides, or the packet is redirected.
    Other,
    Continue,
}

/// A part of a rule. The parts are executed in order until a condition does not hold.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Test(Test),
    /// A condition that is not evaluated.
    Undecided,
    /// A condition that never holds for the packet.
    Never,
    /// Sets the packet mark to `(mark & !clear) ^ set`, or to an unknown value.
    SetMark(Option<(u32, u32)>),
    DisableTracking,
    Do(Action),
    /// Executes the action of the element that the fields match.
    Map(Test, Vec<(Element, Action)>),
}

/// A rule.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    pub(super) steps: Vec<Step>,
    /// The rule as its command prints it.
    pub(super) text: String,
}

/// A chain.
#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub(super) base: Option<Base>,
    pub(super) rules: Vec<Rule>,
}

/// Chains that can jump to each other.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// The name for messages and commands, for example `inet filter`.
    pub(super) name: String,
    /// The address family of the packets, or `None` for both.
    pub(super) family: Option<Family>,
    pub(super) chains: BTreeMap<String, Chain>,
}

/// The result for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The packet is accepted.
    Accept,
    /// The result depends on something that is not known here.
    Unknown {
        /// The rule that could not be evaluated.
        rule: String,
    },
    /// The packet is dropped or rejected.
    Drop {
        /// The rule or the policy.
        rule: String,
        /// The base chain in which the evaluation began, for example `inet filter input`.
        chain: String,
    },
}

/// Priority of connection tracking in the hooks prerouting and output.
const TRACKING_PRIORITY: i32 = -200;
/// Maximum nesting of chains in the kernel.
const MAX_DEPTH: usize = 16;
/// Maximum number of rules that are evaluated in one base chain.
const MAX_STEPS: usize = 200_000;

/// Evaluates all base chains that the packet passes.
pub(super) fn verdict(tables: &[Table], packet: &Packet) -> Verdict {
    let mut bases: Vec<(&Table, &str, &Chain, &Base)> = Vec::new();
    for table in tables {
        if table.family.is_some_and(|family| family != packet.family) {
            continue;
        }
        for (name, chain) in &table.chains {
            if let Some(base) = &chain.base {
                if base.hook.direction() == packet.direction {
                    bases.push((table, name, chain, base));
                }
            }
        }
    }
    bases.sort_by_key(|(_, _, _, base)| (base.hook, base.priority));
    let mut state = PacketState::NEW;
    let mut unknown: Option<String> = None;
    for (table, name, chain, base) in bases {
        let applies = match &base.netdevs {
            _ if !base.is_for_netdevs => Condition::Yes,
            Some(netdevs) => Condition::from_bool(netdevs.contains(&packet.netdev)),
            None => Condition::Unknown,
        };
        if applies == Condition::No {
            continue;
        }
        state.is_before_tracking = match base.hook {
            Hook::Ingress => true,
            Hook::Prerouting | Hook::Output => base.priority < TRACKING_PRIORITY,
            _ => false,
        };
        let chain_name = format!("{} {name}", table.name);
        let before = state;
        let mut traversal = Traversal {
            table,
            packet,
            state,
            undecided: None,
            steps: 0,
            evaluated: HashMap::new(),
        };
        let mut outcomes = traversal.chain(chain, 0);
        state = traversal.state;
        let mut undecided = traversal.undecided;
        if outcomes.end {
            if base.drops {
                let policy = format!("the policy of chain {chain_name}");
                outcomes.drop.get_or_insert(policy);
            } else {
                outcomes.accept = true;
            }
        }
        if applies == Condition::Unknown {
            outcomes.accept = true;
            state = state.join(before);
            undecided.get_or_insert_with(|| {
                format!("chain {chain_name}, whose network interface nft does not print")
            });
        }
        match outcomes {
            Outcomes {
                other: None,
                drop: None,
                ..
            } => {}
            Outcomes {
                other: None,
                drop: Some(rule),
                accept: false,
                ..
            } => {
                return Verdict::Drop {
                    rule,
                    chain: chain_name,
                };
            }
            Outcomes {
                other: Some(rule), ..
            } => {
                let rule = unknown.or(undecided).unwrap_or(rule);
                return Verdict::Unknown { rule };
            }
            Outcomes {
                drop: Some(rule), ..
            } => {
                unknown.get_or_insert(undecided.unwrap_or(rule));
            }
        }
    }
    unknown.map_or(Verdict::Accept, |rule| Verdict::Unknown { rule })
}

/// The possible outcomes of a chain.
#[derive(Clone, Debug, Default)]
struct Outcomes {
    accept: bool,
    /// Dropped by this rule.
    drop: Option<String>,
    /// Redirected, or passed to a program, by this rule.
    other: Option<String>,
    /// The chain ends without a decision.
    end: bool,
}

impl Outcomes {
    fn is_decided(&self) -> bool {
        self.accept || self.drop.is_some() || self.other.is_some()
    }

    /// Adds the decisions of another chain, without its end.
    fn add(&mut self, other: Self) {
        self.accept |= other.accept;
        self.drop = self.drop.take().or(other.drop);
        self.other = self.other.take().or(other.other);
    }
}

struct Traversal<'a> {
    table: &'a Table,
    packet: &'a Packet,
    state: PacketState,
    /// The first rule with a decision and with a condition that is not evaluated.
    undecided: Option<String>,
    steps: usize,
    /// The outcomes of the chains evaluated so far, and the state at their ends. Without it, chains
    /// that jump several times to each other would take exponential time.
    evaluated: HashMap<(&'a str, usize, PacketState), (Outcomes, PacketState)>,
}

impl<'a> Traversal<'a> {
    /// Evaluates a chain that a rule jumps to, unless that was done before at the same depth and in
    /// the same state.
    fn called_chain(&mut self, name: &'a str, chain: &Chain, depth: usize) -> Outcomes {
        let key = (name, depth, self.state);
        if let Some((outcomes, state)) = self.evaluated.get(&key) {
            self.state = *state;
            return outcomes.clone();
        }
        let outcomes = self.chain(chain, depth);
        self.evaluated.insert(key, (outcomes.clone(), self.state));
        outcomes
    }

    fn chain(&mut self, chain: &Chain, depth: usize) -> Outcomes {
        let mut outcomes = Outcomes::default();
        for rule in &chain.rules {
            self.steps += 1;
            if self.steps > MAX_STEPS || depth > MAX_DEPTH {
                outcomes.other = Some(rule.text.clone());
                return outcomes;
            }
            if !self.rule(rule, depth, &mut outcomes) {
                return outcomes;
            }
        }
        outcomes.end = true;
        outcomes
    }

    /// Evaluates a rule. Returns `true` if the next rule can be reached.
    fn rule(&mut self, rule: &Rule, depth: usize, outcomes: &mut Outcomes) -> bool {
        let mut holds = Condition::Yes;
        for step in &rule.steps {
            let before = self.state;
            match step {
                Step::Test(test) => holds = holds.and(test.evaluate(self.packet, self.state)),
                Step::Undecided => holds = holds.and(Condition::Unknown),
                Step::Never => holds = Condition::No,
                Step::SetMark(mark) => {
                    self.state.mark = mark
                        .zip(self.state.mark)
                        .map(|((clear, set), mark)| (mark & !clear) ^ set);
                }
                Step::DisableTracking => self.state.untracked = Condition::Yes,
                Step::Do(action) => {
                    if !self.action(action, holds, rule, depth, outcomes) {
                        return false;
                    }
                }
                Step::Map(test, entries) => {
                    let mut reaches_next = Condition::Yes;
                    // A more specific element has precedence over the wildcard.
                    let specific = entries
                        .iter()
                        .filter(|(element, _)| *element != Element::Any);
                    let wildcard = entries
                        .iter()
                        .filter(|(element, _)| *element == Element::Any);
                    let mut remaining = holds;
                    for (element, action) in specific.chain(wildcard) {
                        let matches = test
                            .matches(element, self.packet, self.state)
                            .and(remaining);
                        if matches == Condition::No {
                            continue;
                        }
                        let reaches = self.action(action, matches, rule, depth, outcomes);
                        if matches == Condition::Yes {
                            reaches_next = Condition::from_bool(reaches);
                            break;
                        }
                        remaining = Condition::Unknown;
                    }
                    if reaches_next == Condition::No {
                        return false;
                    }
                    // Without an element for the packet, the rule ends.
                    return true;
                }
            }
            match holds {
                Condition::No => return true,
                Condition::Unknown => self.state = self.state.join(before),
                Condition::Yes => {}
            }
        }
        true
    }

    /// Executes an action under a condition. Returns `true` if the next rule can be reached.
    fn action(
        &mut self,
        action: &Action,
        holds: Condition,
        rule: &Rule,
        depth: usize,
        outcomes: &mut Outcomes,
    ) -> bool {
        let certain = holds == Condition::Yes;
        let mut result = Outcomes::default();
        let mut continues = false;
        match action {
            Action::Continue => return true,
            Action::Accept => result.accept = true,
            Action::Drop => result.drop = Some(rule.text.clone()),
            Action::Other => result.other = Some(rule.text.clone()),
            Action::Return => result.end = true,
            Action::Jump(to) | Action::Goto(to) => {
                let Some((name, next)) = self.table.chains.get_key_value(to) else {
                    outcomes.other.get_or_insert_with(|| rule.text.clone());
                    return true;
                };
                let before = self.state;
                result = self.called_chain(name, next, depth + 1);
                if !certain {
                    self.state = self.state.join(before);
                }
                if matches!(action, Action::Jump(_)) {
                    continues = result.end;
                    result.end = false;
                }
            }
        }
        if !certain && (result.is_decided() || result.end) {
            self.undecided.get_or_insert_with(|| rule.text.clone());
        }
        outcomes.end |= result.end;
        outcomes.add(result);
        !certain || continues
    }
}
