//! Finds hosts, ports and links that are slower than the others, or that fail.
//!
//! A cell is slow by the rules of [`SlowLimits`]. An endpoint is a suspect if nearly all of its
//! cells are slow, as sender or as receiver. Its cells are then set aside, because they say nothing
//! about its peers. The slow cells that remain are suspected links.

use serde::{Deserialize, Serialize};

use super::cell::{Cell, CellFigure};
use super::endpoint::Endpoint;
use super::matrix::{Matrix, value};
use super::schedule::Pair;

/// Share of slow cells above which an endpoint is suspected instead of its links. With half of the
/// cells slow, the cause may be the path between two groups of hosts.
const SUSPECT_SHARE: f64 = 0.75;

/// Rules for slow cells, relative to the best cell of the same test. The defaults are those of
/// NVIDIA's ClusterKit.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct SlowLimits {
    /// A latency above this multiple of the minimum is slow.
    pub latency: f64,
    /// A bandwidth below this fraction of the maximum is slow.
    pub bandwidth: f64,
}

impl Default for SlowLimits {
    fn default() -> Self {
        Self {
            latency: 2.1,
            bandwidth: 0.93,
        }
    }
}

/// Limit for the figures of one test.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SlowLimit {
    /// Minimum bandwidth in bytes per second.
    Bandwidth(f64),
    /// Maximum latency in nanoseconds.
    Latency(f64),
}

impl SlowLimit {
    /// Returns the limit that follows from the best cell; `None` if no test completed.
    pub(crate) fn new(matrix: &Matrix<'_>, limits: &SlowLimits) -> Option<Self> {
        let (low, high) = matrix.range()?;
        Some(if matrix.is_bandwidth() {
            Self::Bandwidth(high * limits.bandwidth)
        } else {
            Self::Latency(low * limits.latency)
        })
    }

    /// Returns the state of a cell.
    pub(crate) fn state(self, figure: &CellFigure) -> CellState {
        let is_slow = match (self, figure) {
            (_, CellFigure::Failed(_)) => return CellState::Failed,
            (Self::Bandwidth(limit), CellFigure::Bandwidth(value)) => *value < limit,
            (Self::Latency(limit), CellFigure::Latency(value)) => *value > limit,
            // A test has figures of one kind only.
            _ => false,
        };
        if is_slow {
            CellState::Slow
        } else {
            CellState::Good
        }
    }
}

/// State of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CellState {
    /// Within the limit.
    Good,
    /// Slower than the limit.
    Slow,
    /// The test failed.
    Failed,
}

/// Direction in which an endpoint is slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SlowDirection {
    /// The client and the server of its tests.
    Both,
    /// Only as the client of a test.
    From,
    /// Only as the server of a test.
    To,
}

/// The part of the network that an outlier was traced to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Location {
    /// All hosts: no test completed.
    All,
    /// All ports of a host.
    Host {
        /// The host.
        host: String,
        /// Names of its endpoints.
        ports: Vec<String>,
    },
    /// One port of a host whose other ports are not slow.
    Port {
        /// The host.
        host: String,
        /// Name of the endpoint.
        port: String,
    },
    /// The path between two endpoints that are not slow otherwise.
    Link {
        /// Endpoint of the client.
        from: String,
        /// Endpoint of the server.
        to: String,
    },
}

/// Conclusion of the repeated measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Confirmation {
    /// No measurement was repeated.
    NotRepeated,
    /// The repeated measurements have the same outliers.
    Confirmed,
    /// Alone, without other tests at the same time, the tests are not slow.
    OnlyUnderLoad,
    /// The client of the link is also slow with another server.
    FollowsFrom,
    /// The server of the link is also slow with another client.
    FollowsTo,
}

/// A repeated measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Retest {
    /// Endpoint of the client.
    pub from: String,
    /// Endpoint of the server.
    pub to: String,
    /// Bytes per second, or median latency in nanoseconds; none if the test failed.
    pub value: Option<f64>,
    /// Comparison with the limit.
    pub state: CellState,
}

/// A host, a port or a link that is slow or fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Outlier {
    /// The part of the network.
    #[serde(flatten)]
    pub location: Location,
    /// Label of the test.
    pub test: String,
    /// State of most of its cells.
    pub state: CellState,
    /// Direction in which it is slow.
    pub direction: SlowDirection,
    /// Number of slow or failed cells.
    pub cells: u32,
    /// Median of its slow figures, in bytes per second or nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub typical: Option<f64>,
    /// Limit that the figures exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
    /// First error, if tests failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Conclusion of the repeated measurements.
    pub confirmation: Confirmation,
    /// Repeated measurements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retests: Vec<Retest>,
    /// Description of the outlier.
    pub text: String,
    /// Next step of the search for the cause.
    pub help: String,
}

/// A suspect before its description: an endpoint or a pair of endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspect {
    /// The endpoints at fault, all of one host; empty for a link.
    pub endpoints: Vec<u32>,
    /// The pair of a link, or the worst pair of an endpoint.
    pub pair: Pair,
    /// State of most of its cells.
    pub state: CellState,
    /// Direction in which it is slow.
    pub direction: SlowDirection,
    /// Its slow cells.
    pub cells: Vec<Pair>,
}

/// Number of slow cells among the measured cells.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    bad: u32,
    total: u32,
}

impl Tally {
    fn share(self) -> f64 {
        // One cell does not tell an endpoint from a link.
        if self.bad < 2 {
            0.0
        } else {
            f64::from(self.bad) / f64::from(self.total)
        }
    }

    fn is_suspect(self) -> bool {
        self.share() > SUSPECT_SHARE
    }
}

/// Finds the suspects of one test.
pub(crate) fn suspects(
    matrix: &Matrix<'_>,
    limit: Option<SlowLimit>,
    endpoints: &[Endpoint],
) -> Vec<Suspect> {
    let n = matrix.endpoints();
    let state = |cell: &Cell| match limit {
        Some(limit) => limit.state(&cell.figure),
        None => CellState::Failed,
    };
    if let Some(all) = all_failed(matrix) {
        return vec![all];
    }
    let mut tallies = vec![[Tally::default(); 2]; n as usize];
    let mut bad: Vec<(Pair, CellState)> = Vec::new();
    for cell in matrix.cells() {
        let state = state(cell);
        let is_bad = u32::from(state != CellState::Good);
        for (end, side) in [(cell.pair.from, 0), (cell.pair.to, 1)] {
            let tally = &mut tallies[end as usize][side];
            tally.total += 1;
            tally.bad += is_bad;
        }
        if is_bad == 1 {
            bad.push((cell.pair, state));
        }
    }
    let mut found = Vec::new();
    while let Some((worst, direction)) = worst_endpoint(&tallies) {
        let (own, rest) = bad
            .into_iter()
            .partition(|(pair, _)| pair.from == worst || pair.to == worst);
        bad = rest;
        tallies[worst as usize] = [Tally::default(); 2];
        for other in 0..n {
            for (pair, side) in [(Pair::new(other, worst), 0), (Pair::new(worst, other), 1)] {
                let tally = &mut tallies[other as usize][side];
                if let Some(cell) = matrix.cell(pair).filter(|_| tally.total > 0) {
                    tally.total -= 1;
                    tally.bad -= u32::from(state(cell) != CellState::Good);
                }
            }
        }
        found.push(SlowEndpoint {
            id: worst,
            direction,
            cells: own,
        });
    }
    let mut suspects = by_host(&found, endpoints);
    suspects.extend(bad.into_iter().map(|(pair, state)| Suspect {
        endpoints: Vec::new(),
        pair,
        state,
        direction: SlowDirection::Both,
        cells: vec![pair],
    }));
    suspects
}

/// Returns all endpoints as one suspect, if no test completed. The cells then do not show which
/// hosts have the fault.
fn all_failed(matrix: &Matrix<'_>) -> Option<Suspect> {
    let cells: Vec<Pair> = matrix.cells().map(|cell| cell.pair).collect();
    let has_value = matrix.cells().any(|cell| value(cell).is_some());
    let pair = cells.first().copied().filter(|_| !has_value)?;
    Some(Suspect {
        endpoints: (0..matrix.endpoints()).collect(),
        pair,
        state: CellState::Failed,
        direction: SlowDirection::Both,
        cells,
    })
}

/// Returns the endpoint with the largest share of slow cells, if it is a suspect.
fn worst_endpoint(tallies: &[[Tally; 2]]) -> Option<(u32, SlowDirection)> {
    let rank = |[from, to]: &[Tally; 2]| {
        let share = from.share().max(to.share());
        (share, f64::from(from.bad + to.bad))
    };
    let (index, worst) = (0..).zip(tallies).max_by(|(_, a), (_, b)| {
        let (a, b) = (rank(a), rank(b));
        a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1))
    })?;
    match worst.map(Tally::is_suspect) {
        [true, true] => Some((index, SlowDirection::Both)),
        [true, false] => Some((index, SlowDirection::From)),
        [false, true] => Some((index, SlowDirection::To)),
        [false, false] => None,
    }
}

/// An endpoint whose cells are nearly all slow.
#[derive(Clone, Debug)]
struct SlowEndpoint {
    id: u32,
    direction: SlowDirection,
    cells: Vec<(Pair, CellState)>,
}

/// Combines the endpoints of a host if all of them are suspects.
fn by_host(found: &[SlowEndpoint], endpoints: &[Endpoint]) -> Vec<Suspect> {
    let host = |id: u32| &endpoints[id as usize];
    let mut suspects: Vec<Suspect> = Vec::new();
    for slow in found {
        if suspects.iter().any(|s| s.endpoints.contains(&slow.id)) {
            continue;
        }
        let is_sibling = |id: u32| host(id).shares_host(host(slow.id));
        let ports = endpoints.iter().filter(|e| e.shares_host(host(slow.id)));
        let mut together: Vec<_> = found.iter().filter(|s| is_sibling(s.id)).collect();
        if together.len() < ports.count() {
            together = vec![slow];
        }
        let agrees = together.iter().all(|s| s.direction == slow.direction);
        let cells: Vec<_> = together.iter().flat_map(|s| &s.cells).collect();
        let failed = cells.iter().filter(|c| c.1 == CellState::Failed).count();
        suspects.push(Suspect {
            endpoints: together.iter().map(|s| s.id).collect(),
            pair: cells[0].0,
            state: if failed * 2 > cells.len() {
                CellState::Failed
            } else {
                CellState::Slow
            },
            direction: if agrees {
                slow.direction
            } else {
                SlowDirection::Both
            },
            cells: cells.iter().map(|c| c.0).collect(),
        });
    }
    suspects
}
