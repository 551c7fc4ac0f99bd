//! Repeats the measurements of suspects and describes the outliers.
//!
//! A suspected endpoint is measured alone with endpoints that are not suspects, in both directions.
//! A suspected link is measured alone, and its two ends with other peers (swapped pairs): if the
//! slowness follows one end, the link is not the cause.

use base::error::split_help;
use base::units::Style;

use super::endpoint::Endpoint;
use super::outlier::{
    CellState, Confirmation, Location, Outlier, Retest, SlowDirection, SlowLimit, Suspect,
};
use super::record::MeshTest;
use super::schedule::Pair;

/// Number of peers with which a suspected endpoint is measured again.
const PARTNERS: usize = 2;

/// Maximum number of suspects per test that are measured again.
pub(crate) const MAX_REPEATED: usize = 64;

/// Returns the pairs to measure again, one after another. `healthy` are the endpoints that are not
/// suspects.
pub(crate) fn repeated_pairs(
    suspect: &Suspect,
    endpoints: &[Endpoint],
    healthy: &[u32],
) -> Vec<Pair> {
    let Pair { from, to } = suspect.pair;
    let host = |id: u32| &endpoints[id as usize];
    // The search begins behind the suspect, so that not all suspects load the same partners.
    let start = healthy.partition_point(|id| *id <= from);
    let (before, behind) = healthy.split_at(start);
    let partners = |other: u32, ends: &[u32]| -> Vec<u32> {
        let usable =
            behind.iter().chain(before).copied().filter(|id| {
                *id != other && ends.iter().all(|end| host(*id).can_reach(host(*end)))
            });
        usable.take(PARTNERS).collect()
    };
    if suspect.endpoints.is_empty() {
        let mut pairs = vec![suspect.pair];
        let others = partners(to, &[from, to]);
        pairs.extend(others.first().map(|other| Pair::new(from, *other)));
        pairs.extend(others.first().map(|other| Pair::new(*other, to)));
        return pairs;
    }
    let mut pairs = Vec::new();
    for end in &suspect.endpoints {
        for partner in partners(*end, &suspect.endpoints) {
            let pair = Pair::new(*end, partner);
            match suspect.direction {
                SlowDirection::From => pairs.push(pair),
                SlowDirection::To => pairs.push(pair.reversed()),
                SlowDirection::Both => pairs.extend([pair, pair.reversed()]),
            }
        }
    }
    if pairs.is_empty() {
        pairs = suspect.cells.iter().copied().take(2).collect();
    }
    pairs
}

/// Returns the conclusion from the repeated measurements, in the order of `repeated_pairs`.
pub(crate) fn conclude(suspect: &Suspect, states: &[CellState]) -> Confirmation {
    let is_bad = |index: usize| {
        states
            .get(index)
            .is_some_and(|state| *state != CellState::Good)
    };
    if states.is_empty() {
        return Confirmation::NotRepeated;
    }
    if suspect.endpoints.is_empty() {
        return match (is_bad(0), is_bad(1), is_bad(2)) {
            (false, ..) => Confirmation::OnlyUnderLoad,
            (true, true, false) => Confirmation::FollowsFrom,
            (true, false, true) => Confirmation::FollowsTo,
            (true, ..) => Confirmation::Confirmed,
        };
    }
    let bad = states.iter().filter(|s| **s != CellState::Good).count();
    if bad * 2 > states.len() {
        Confirmation::Confirmed
    } else {
        Confirmation::OnlyUnderLoad
    }
}

/// The facts about a suspect from which its description is made.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Median of the slow figures.
    pub typical: Option<f64>,
    /// Limit of the test.
    pub limit: Option<SlowLimit>,
    /// First error.
    pub error: Option<String>,
    /// Repeated measurements.
    pub retests: Vec<Retest>,
    /// Conclusion of the repeated measurements.
    pub confirmation: Confirmation,
}

/// Describes a suspect.
pub(crate) fn describe(
    suspect: &Suspect,
    test: &MeshTest,
    endpoints: &[Endpoint],
    evidence: Evidence,
) -> Outlier {
    let endpoint = |id: u32| &endpoints[id as usize];
    let name = |id: u32| endpoint(id).name.clone();
    let (from, to) = (name(suspect.pair.from), name(suspect.pair.to));
    let location = match suspect.endpoints.as_slice() {
        [] => Location::Link { from, to },
        all if all.len() == endpoints.len() => Location::All,
        [first, ..] => {
            let host = endpoint(*first).host.clone();
            let on_host = endpoints.iter().filter(|e| e.shares_host(endpoint(*first)));
            if on_host.count() == suspect.endpoints.len() {
                let ports = suspect.endpoints.iter().map(|id| name(*id)).collect();
                Location::Host { host, ports }
            } else {
                let port = name(*first);
                Location::Port { host, port }
            }
        }
    };
    let Evidence {
        typical,
        limit,
        error,
        retests,
        confirmation,
    } = evidence;
    let (cause, remedy) = error.as_deref().map(split_help).unzip();
    let figures = figures(suspect.state, typical, limit, cause);
    // The remedy of the error is about its cause.
    let is_alone = confirmation != Confirmation::OnlyUnderLoad;
    let remedy = remedy
        .flatten()
        .filter(|_| suspect.state == CellState::Failed && is_alone);
    let conclusion = conclusion(suspect.state, confirmation);
    Outlier {
        text: format!(
            "{}: {}: {figures}{conclusion}",
            subject(&location, suspect),
            test.label
        ),
        help: remedy.map_or_else(
            || help(&location, suspect.state, confirmation),
            str::to_owned,
        ),
        location,
        test: test.label.clone(),
        state: suspect.state,
        direction: suspect.direction,
        cells: u32::try_from(suspect.cells.len()).unwrap_or(u32::MAX),
        typical,
        limit: limit.map(|(SlowLimit::Bandwidth(value) | SlowLimit::Latency(value))| value.round()),
        error,
        confirmation,
        retests,
    }
}

fn subject(location: &Location, suspect: &Suspect) -> String {
    let direction = match suspect.direction {
        SlowDirection::Both => "",
        SlowDirection::From => ", as the client",
        SlowDirection::To => ", as the server",
    };
    let cells = suspect.cells.len();
    match location {
        Location::All => "all hosts".to_owned(),
        Location::Host { host, ports } => {
            let ports = match ports.as_slice() {
                [one] if one == host => String::new(),
                ports => format!(" (port {})", ports.join(", ")),
            };
            format!("host {host}{ports}{direction}, {cells} pairs")
        }
        Location::Port { host, port } => {
            format!("port {port} of host {host}{direction}, {cells} pairs")
        }
        Location::Link { from, to } => format!("link {from} → {to}"),
    }
}

fn figures(
    state: CellState,
    typical: Option<f64>,
    limit: Option<SlowLimit>,
    error: Option<&str>,
) -> String {
    let style = Style::default();
    match (state, typical, limit) {
        (CellState::Failed, ..) | (_, None, _) | (_, _, None) => {
            format!("failed: {}", error.unwrap_or("no test completed"))
        }
        (_, Some(typical), Some(SlowLimit::Bandwidth(limit))) => format!(
            "{} is below {}",
            style.bandwidth(typical),
            style.bandwidth(limit)
        ),
        (_, Some(typical), Some(SlowLimit::Latency(limit))) => {
            format!("{} is above {}", style.time(typical), style.time(limit))
        }
    }
}

fn conclusion(state: CellState, confirmation: Confirmation) -> &'static str {
    match (confirmation, state) {
        (Confirmation::NotRepeated, _) => "; not measured again",
        (Confirmation::Confirmed, CellState::Failed) => "; fails alone as well",
        (Confirmation::Confirmed, _) => "; as slow alone",
        (Confirmation::OnlyUnderLoad, CellState::Failed) => "; succeeds alone",
        (Confirmation::OnlyUnderLoad, _) => "; not slow alone",
        (Confirmation::FollowsFrom, _) => "; the client is slow with another server as well",
        (Confirmation::FollowsTo, _) => "; the server is slow with another client as well",
    }
}

fn help(location: &Location, state: CellState, confirmation: Confirmation) -> String {
    match (location, state, confirmation) {
        (Location::Link { .. }, _, Confirmation::OnlyUnderLoad) => {
            "repeat the run; if it stays, look for a switch port or uplink that several of these pairs share".to_owned()
        }
        (_, _, Confirmation::OnlyUnderLoad) => {
            "repeat the run; if it stays, look for other load on the host and for congestion at its switch".to_owned()
        }
        (Location::All, ..) => {
            "check that the hosts run `rperf` with --mesh, then run `ribinfo check` on one of them"
                .to_owned()
        }
        (Location::Host { host, .. }, CellState::Failed, _) => {
            format!("check that host {host} is up and runs `rperf`, then run `ribinfo check` there")
        }
        (Location::Host { host, .. }, ..) => format!(
            "run `ribinfo check` on {host}: link rate, PCIe width, MTU, CPU governor; then its cables and its switch port"
        ),
        (Location::Port { host, port }, ..) => format!(
            "run `ribinfo check` on {host} and compare {port} with the other ports: link rate, PCIe width, cable, switch port"
        ),
        (Location::Link { from, .. }, _, Confirmation::FollowsFrom) => {
            format!("run `ribinfo check` on {from}")
        }
        (Location::Link { to, .. }, _, Confirmation::FollowsTo) => {
            format!("run `ribinfo check` on {to}")
        }
        (Location::Link { from, to }, CellState::Failed, _) => format!(
            "remove the cause that the error names; if it names none, check routes, firewalls and partitions between {from} and {to}"
        ),
        (Location::Link { from, to }, ..) => format!(
            "both ends are fast with other peers: look at the switches, cables and routes between {from} and {to}"
        ),
    }
}
