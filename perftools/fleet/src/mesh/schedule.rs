//! The rounds of a mesh: the pairs of endpoints that are measured at the same time.
//!
//! Rounds are computed one at a time, so the schedule of a large mesh needs no memory.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// Order in which the pairs of hosts are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum MeshPattern {
    /// All ordered pairs, in rounds in which no port is used twice
    #[default]
    Pairs,
    /// Each port sends to the next one, all at once
    Ring,
    /// Each port of the first half sends to one of the second half, all at once, then back
    Bisect,
    /// All other ports send to one port at once; each port in turn
    Incast,
    /// One port sends to all other ports at once; each port in turn
    Outcast,
    /// Each port sends to all other ports, all at once
    AllToAll,
}

/// A sending and a receiving endpoint, as positions in the list of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// Endpoint of the client.
    pub from: u32,
    /// Endpoint of the server.
    pub to: u32,
}

impl Pair {
    /// Creates a pair.
    pub(crate) fn new(from: u32, to: u32) -> Self {
        Self { from, to }
    }

    /// Returns the pair in the opposite direction.
    #[must_use]
    pub(crate) fn reversed(self) -> Self {
        Self::new(self.to, self.from)
    }
}

/// The rounds of a pattern over a number of endpoints.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pattern: MeshPattern,
    endpoints: u32,
}

impl Schedule {
    /// Creates the schedule of a pattern.
    pub(crate) fn new(pattern: MeshPattern, endpoints: u32) -> Self {
        Self { pattern, endpoints }
    }

    /// Returns the number of rounds.
    pub(crate) fn len(self) -> u32 {
        let n = self.endpoints;
        match self.pattern {
            _ if n < 2 => 0,
            MeshPattern::Pairs => 2 * (n.next_multiple_of(2) - 1),
            MeshPattern::Ring | MeshPattern::AllToAll => 1,
            MeshPattern::Bisect => 2,
            MeshPattern::Incast | MeshPattern::Outcast => n,
        }
    }

    /// Returns `true` if the tests of a round must start at the same time, because they share ports
    /// or their sum is a result.
    pub(crate) fn has_common_start(self) -> bool {
        self.pattern != MeshPattern::Pairs
    }

    /// Returns the pairs of a round.
    pub(crate) fn round(self, round: u32) -> Vec<Pair> {
        let n = self.endpoints;
        if round >= self.len() {
            return Vec::new();
        }
        let others = |one: u32| (0..n).filter(move |other| *other != one);
        match self.pattern {
            MeshPattern::Pairs => tournament(n, round),
            MeshPattern::Ring => (0..n).map(|i| Pair::new(i, (i + 1) % n)).collect(),
            MeshPattern::Bisect => (0..n / 2)
                .map(|i| Pair::new(i, i + n / 2))
                .map(|pair| if round == 0 { pair } else { pair.reversed() })
                .collect(),
            MeshPattern::Incast => others(round).map(|i| Pair::new(i, round)).collect(),
            MeshPattern::Outcast => others(round).map(|i| Pair::new(round, i)).collect(),
            MeshPattern::AllToAll => (0..n)
                .flat_map(|i| others(i).map(move |j| Pair::new(i, j)))
                .collect(),
        }
    }
}

/// Returns a round of a round-robin tournament, computed with the circle method: one endpoint is
/// fixed and the others rotate. Odd rounds have the pairs of the round before them, reversed.
fn tournament(endpoints: u32, round: u32) -> Vec<Pair> {
    // With an odd number of endpoints, the endpoint that meets the additional one is idle.
    let places = endpoints.next_multiple_of(2);
    let circle = places - 1;
    let turn = round / 2;
    let pairs = (0..places / 2).map(|k| {
        if k == 0 {
            Pair::new(turn, circle)
        } else {
            Pair::new((turn + k) % circle, (turn + circle - k) % circle)
        }
    });
    pairs
        .filter(|pair| pair.from < endpoints && pair.to < endpoints)
        .map(|pair| {
            if round % 2 == 0 {
                pair
            } else {
                pair.reversed()
            }
        })
        .collect()
}

/// Returns Jain's fairness index: 1 if all values are equal, `1 / n` if one of `n` has everything.
/// Without a positive value there is nothing to share, and the result is `None`.
#[allow(clippy::cast_precision_loss)] // A number of cells.
pub(crate) fn fairness(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    (squares > 0.0).then(|| sum * sum / (values.len() as f64 * squares))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(pattern: MeshPattern, n: u32) -> Vec<Vec<Pair>> {
        let schedule = Schedule::new(pattern, n);
        (0..schedule.len()).map(|r| schedule.round(r)).collect()
    }

    #[test]
    fn tournaments_have_each_ordered_pair_once() {
        for n in (0..=33).chain([64, 999, 1000]) {
            // Vectors, because sets take seconds without optimization.
            let size = n as usize;
            let mut seen = vec![false; size * size];
            for round in all(MeshPattern::Pairs, n) {
                let mut busy = vec![false; size];
                for pair in round {
                    let [from, to] = [pair.from, pair.to].map(|end| end as usize);
                    assert!(from != to, "{n}: {pair:?} to itself");
                    let is_repeated = std::mem::replace(&mut seen[from * size + to], true);
                    assert!(!is_repeated, "{n}: {pair:?} twice");
                    for end in [from, to] {
                        assert!(!std::mem::replace(&mut busy[end], true), "{n}: {pair:?}");
                    }
                }
            }
            let pairs = seen.iter().filter(|is_seen| **is_seen).count();
            assert_eq!(pairs, size * size.saturating_sub(1), "{n}");
        }
    }

    #[test]
    fn tournaments_have_the_least_number_of_rounds() {
        for (n, rounds) in [(0, 0), (1, 0), (2, 2), (3, 6), (4, 6), (1000, 1998)] {
            assert_eq!(Schedule::new(MeshPattern::Pairs, n).len(), rounds, "{n}");
        }
    }

    #[test]
    fn patterns_have_the_pairs_of_their_names() {
        let pairs = |list: &[(u32, u32)]| -> Vec<Pair> {
            list.iter().map(|(a, b)| Pair::new(*a, *b)).collect()
        };
        assert_eq!(
            all(MeshPattern::Ring, 3),
            [pairs(&[(0, 1), (1, 2), (2, 0)])]
        );
        assert_eq!(
            all(MeshPattern::Bisect, 4),
            [pairs(&[(0, 2), (1, 3)]), pairs(&[(2, 0), (3, 1)])]
        );
        assert_eq!(all(MeshPattern::Incast, 3)[1], pairs(&[(0, 1), (2, 1)]));
        assert_eq!(all(MeshPattern::Outcast, 3)[2], pairs(&[(2, 0), (2, 1)]));
        assert_eq!(all(MeshPattern::AllToAll, 5)[0].len(), 20);
        for pattern in [
            MeshPattern::Ring,
            MeshPattern::Incast,
            MeshPattern::AllToAll,
        ] {
            assert_eq!(all(pattern, 1), Vec::<Vec<Pair>>::new());
        }
    }

    #[test]
    fn fairness_is_that_of_jain() {
        let near = |values: &[f64], expected: f64| {
            assert!((fairness(values).unwrap() - expected).abs() < 1e-12);
        };
        near(&[5.0, 5.0, 5.0], 1.0);
        near(&[1.0, 0.0, 0.0, 0.0], 0.25);
        near(&[3.0, 1.0], 0.8);
        assert_eq!(fairness(&[]), None);
        assert_eq!(fairness(&[0.0]), None);
    }
}
