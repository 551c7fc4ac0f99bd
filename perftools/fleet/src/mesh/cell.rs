//! The cells of a mesh: one result per ordered pair of endpoints and test.
//!
//! A mesh of 1,000 hosts has a million cells. They therefore refer to their endpoints and tests by
//! position, and have names only in files.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use base::histogram::Percentiles;
use measure::stats::SideStats;
use report::record::Measured;
use report::warning::cause;
use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::schedule::Pair;

/// Main result of a test.
#[derive(Clone, Debug, PartialEq)]
pub enum CellFigure {
    /// Bytes per second.
    Bandwidth(f64),
    /// Median latency in nanoseconds.
    Latency(f64),
    /// Reason of the failure.
    Failed(Box<str>),
}

/// Counters of a test at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct CellCounters {
    /// Messages sent by both ends.
    pub sent: u64,
    /// Messages received by both ends.
    pub received: u64,
    /// Messages that never arrived.
    #[serde(default)]
    pub lost: u64,
    /// Longest time without completions, in nanoseconds, if stalls were looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<u64>,
    /// Processor time of the client, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_cpu: Option<f64>,
    /// Processor time of the server, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_cpu: Option<f64>,
}

/// Counters of the ports that show errors or congestion, and their increases during a test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct CellPortCounters {
    /// Those of the client.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub from: BTreeMap<String, u64>,
    /// Those of the server.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub to: BTreeMap<String, u64>,
}

impl CellPortCounters {
    /// Returns the counters of the statistics of both ends; `None` if none increased.
    fn new(from: &SideStats, to: &SideStats) -> Option<Self> {
        let [from, to] = [from, to].map(|side| -> BTreeMap<String, u64> {
            let counters = side.port_counters.iter().flat_map(cause::relevant_counters);
            counters.map(|(name, by)| (name.to_owned(), by)).collect()
        });
        (!from.is_empty() || !to.is_empty()).then_some(Self { from, to })
    }
}

/// Results of a test beside its main result.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellDetail {
    /// Latencies, for latency tests.
    pub percentiles: Option<Percentiles>,
    /// Bandwidths towards the server and towards the client, of a test in both directions.
    pub directions: Option<(f64, f64)>,
    /// Counters of both ends.
    pub counters: Option<CellCounters>,
    /// Counters of the ports, if some increased.
    pub port_counters: Option<CellPortCounters>,
    /// Limits of the user that the result exceeds, each as a sentence.
    pub exceeded: Vec<String>,
    /// Detected conditions that can distort the result.
    pub warnings: Vec<String>,
}

/// Result of one test from one endpoint to another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// The endpoints.
    pub pair: Pair,
    /// Position of the test.
    pub test: u16,
    /// Main result.
    pub figure: CellFigure,
    /// Other results.
    pub detail: Option<Box<CellDetail>>,
}

impl Cell {
    /// Creates the cell of a completed test. Its figure is a whole number, which a reader of the
    /// record gets without a rounding error.
    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    pub(crate) fn measured(pair: Pair, test: u16, m: &Measured, exceeded: Vec<String>) -> Self {
        let figure = match (&m.latency, m.summary.bandwidth, m.summary.latency) {
            (Some(p), ..) => CellFigure::Latency(p.p50 as f64),
            (None, Some(bandwidth), _) => CellFigure::Bandwidth(bandwidth.round()),
            (None, None, Some(latency)) => CellFigure::Latency(latency.round()),
            (None, None, None) => CellFigure::Failed("no message arrived".into()),
        };
        let (l, r) = (&m.local_stats, &m.remote_stats);
        let directions = m.summary.to_server.zip(m.summary.to_client);
        let detail = CellDetail {
            percentiles: m.latency,
            directions: directions.map(|(to, from)| (to.round(), from.round())),
            counters: Some(CellCounters {
                sent: l.sent.msgs + r.sent.msgs,
                received: l.received.msgs + r.received.msgs,
                lost: l.lost + r.lost,
                stalled: l.stalled.max(r.stalled),
                from_cpu: l.cpu.process,
                to_cpu: r.cpu.process,
            }),
            port_counters: CellPortCounters::new(l, r),
            exceeded,
            warnings: m.warnings.iter().map(ToString::to_string).collect(),
        };
        Self {
            pair,
            test,
            figure,
            detail: Some(Box::new(detail)),
        }
    }

    /// Creates the cell of a failed test.
    pub(crate) fn failed(pair: Pair, test: u16, error: impl Into<Box<str>>) -> Self {
        Self {
            pair,
            test,
            figure: CellFigure::Failed(error.into()),
            detail: None,
        }
    }

    /// Returns the limits of the user that the result exceeds, each as a sentence.
    pub(crate) fn exceeded(&self) -> &[String] {
        self.detail.as_ref().map_or(&[], |d| &d.exceeded)
    }
}

/// A cell as it is written to a record: names instead of positions, and exactly one of `bandwidth`,
/// `latency` and `error`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct NamedCell<'a> {
    /// Endpoint of the client.
    #[serde(borrow)]
    pub from: Cow<'a, str>,
    /// Endpoint of the server.
    #[serde(borrow)]
    pub to: Cow<'a, str>,
    /// Label of the test.
    #[serde(borrow)]
    pub test: Cow<'a, str>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth: Option<f64>,
    /// Bandwidth towards the server, of a test in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_server: Option<f64>,
    /// Bandwidth towards the client, of a test in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_client: Option<f64>,
    /// Median latency in nanoseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<f64>,
    /// Reason of the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Cow<'a, str>>,
    /// Latencies, for latency tests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percentiles: Option<Percentiles>,
    /// Counters of both ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counters: Option<CellCounters>,
    /// Counters of the ports that show errors or congestion, and their increases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_counters: Option<CellPortCounters>,
    /// Limits of the user that the result exceeds, each as a sentence.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    pub exceeded: Cow<'a, [String]>,
    /// Detected conditions that can distort the result.
    #[serde(default, skip_serializing_if = "<[String]>::is_empty")]
    pub warnings: Cow<'a, [String]>,
}

/// The cells of a mesh, in the order in which they were measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cells {
    /// Names of the endpoints.
    pub endpoints: Vec<String>,
    /// Labels of the tests.
    pub tests: Vec<String>,
    /// The cells.
    pub list: Vec<Cell>,
}

impl Cells {
    /// Creates an empty list of cells.
    pub(crate) fn new(endpoints: Vec<String>, tests: Vec<String>) -> Self {
        Self {
            endpoints,
            tests,
            list: Vec::new(),
        }
    }

    /// Returns a cell with the names of its endpoints and its test.
    pub(crate) fn named<'a>(&'a self, cell: &'a Cell) -> NamedCell<'a> {
        let name = |id: u32| Cow::from(self.endpoints[id as usize].as_str());
        let directions = cell.detail.as_ref().and_then(|d| d.directions);
        let mut named = NamedCell {
            from: name(cell.pair.from),
            to: name(cell.pair.to),
            test: Cow::from(self.tests[usize::from(cell.test)].as_str()),
            bandwidth: None,
            to_server: directions.map(|d| d.0),
            to_client: directions.map(|d| d.1),
            latency: None,
            error: None,
            percentiles: cell.detail.as_ref().and_then(|d| d.percentiles),
            counters: cell.detail.as_ref().and_then(|d| d.counters),
            port_counters: cell.detail.as_ref().and_then(|d| d.port_counters.clone()),
            exceeded: Cow::Borrowed(cell.exceeded()),
            warnings: cell
                .detail
                .as_ref()
                .map_or(Cow::Borrowed(&[]), |d| Cow::Borrowed(&d.warnings)),
        };
        match &cell.figure {
            CellFigure::Bandwidth(value) => named.bandwidth = Some(*value),
            CellFigure::Latency(value) => named.latency = Some(*value),
            CellFigure::Failed(error) => named.error = Some(Cow::from(&**error)),
        }
        named
    }

    /// Changes the positions to those of other lists of names. Returns a name that they lack, if
    /// there is one.
    pub(super) fn renumber(&mut self, endpoints: &[String], tests: &[String]) -> Option<String> {
        let positions = |old: &[String], new: &[String]| -> Result<Vec<usize>, String> {
            let map: HashMap<&str, usize> = new
                .iter()
                .enumerate()
                .map(|(i, n)| (n.as_str(), i))
                .collect();
            let find = |name: &String| map.get(name.as_str()).copied().ok_or_else(|| name.clone());
            old.iter().map(find).collect()
        };
        let maps = positions(&self.endpoints, endpoints)
            .and_then(|e| positions(&self.tests, tests).map(|t| (e, t)));
        let (by_endpoint, by_test) = match maps {
            Ok(maps) => maps,
            Err(name) => return Some(name),
        };
        let endpoint = |id: u32| u32::try_from(by_endpoint[id as usize]).unwrap_or(u32::MAX);
        for cell in &mut self.list {
            cell.pair = Pair::new(endpoint(cell.pair.from), endpoint(cell.pair.to));
            cell.test = u16::try_from(by_test[usize::from(cell.test)]).unwrap_or(u16::MAX);
        }
        self.endpoints = endpoints.to_vec();
        self.tests = tests.to_vec();
        None
    }
}

impl Serialize for Cells {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(Some(self.list.len()))?;
        for cell in &self.list {
            seq.serialize_element(&self.named(cell))?;
        }
        seq.end()
    }
}

/// Collects cells and numbers their names in the order of their first use.
#[derive(Default)]
struct Collector {
    cells: Cells,
    endpoints: HashMap<String, u32>,
    tests: HashMap<String, u16>,
}

impl Collector {
    fn endpoint(&mut self, name: &str) -> u32 {
        if let Some(id) = self.endpoints.get(name) {
            return *id;
        }
        let id = u32::try_from(self.cells.endpoints.len()).unwrap_or(u32::MAX);
        self.endpoints.insert(name.to_owned(), id);
        self.cells.endpoints.push(name.to_owned());
        id
    }

    fn test(&mut self, label: &str) -> Result<u16, &'static str> {
        if let Some(id) = self.tests.get(label) {
            return Ok(*id);
        }
        let id = u16::try_from(self.cells.tests.len()).map_err(|_| "too many tests")?;
        self.tests.insert(label.to_owned(), id);
        self.cells.tests.push(label.to_owned());
        Ok(id)
    }

    fn add(&mut self, named: NamedCell<'_>) -> Result<(), &'static str> {
        let figure = match (named.bandwidth, named.latency, named.error) {
            (Some(value), None, None) => CellFigure::Bandwidth(value),
            (None, Some(value), None) => CellFigure::Latency(value),
            (None, None, Some(error)) => CellFigure::Failed(error.into()),
            _ => return Err("a cell needs one of bandwidth, latency and error"),
        };
        let detail = CellDetail {
            percentiles: named.percentiles,
            directions: named.to_server.zip(named.to_client),
            counters: named.counters,
            port_counters: named.port_counters,
            exceeded: named.exceeded.into_owned(),
            warnings: named.warnings.into_owned(),
        };
        let cell = Cell {
            pair: Pair::new(self.endpoint(&named.from), self.endpoint(&named.to)),
            test: self.test(&named.test)?,
            figure,
            detail: (detail != CellDetail::default()).then(|| Box::new(detail)),
        };
        self.cells.list.push(cell);
        Ok(())
    }
}

struct CellsVisitor;

impl<'de> Visitor<'de> for CellsVisitor {
    type Value = Cells;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of cells")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Cells, A::Error> {
        let mut collector = Collector::default();
        while let Some(cell) = seq.next_element::<NamedCell<'de>>()? {
            collector.add(cell).map_err(serde::de::Error::custom)?;
        }
        Ok(collector.cells)
    }
}

impl<'de> Deserialize<'de> for Cells {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(CellsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use measure::stats::port_counters::CounterChanges;
    use report::record::Outcome;
    use report::samples::{bidirectional, latency};

    #[test]
    fn a_cell_keeps_the_counters_that_show_a_cause() {
        let Outcome::Measured(mut m) = latency().outcome else {
            panic!("not measured");
        };
        let changes = |counters: &[(&str, u64)]| {
            let increased = counters.iter().map(|(name, by)| ((*name).to_owned(), *by));
            Some(CounterChanges {
                increased: increased.collect(),
                unknown: Vec::new(),
            })
        };
        m.local_stats.port_counters = changes(&[("hw_counters/sent_pkts", 900)]);
        m.remote_stats.port_counters = m.local_stats.port_counters.clone();
        let cell = Cell::measured(Pair::new(0, 1), 0, &m, Vec::new());
        assert_eq!(cell.detail.unwrap().port_counters, None);
        m.remote_stats.port_counters = changes(&[
            ("hw_counters/sent_pkts", 900),
            ("hw_counters/out_of_seq_request", 12),
        ]);
        let cell = Cell::measured(Pair::new(0, 1), 0, &m, vec!["too slow".to_owned()]);
        let found = cell.detail.as_ref().unwrap().port_counters.clone().unwrap();
        assert_eq!(found.from, BTreeMap::new());
        assert_eq!(found.to, [("out_of_seq_request".to_owned(), 12)].into());
        let mut cells = Cells::new(vec!["a".to_owned(), "b".to_owned()], vec!["t".to_owned()]);
        cells.list.push(cell);
        let text = serde_json::to_string(&cells).unwrap();
        assert!(
            text.contains(r#""port_counters":{"to":{"out_of_seq_request":12}}"#),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Cells>(&text).unwrap(), cells);
    }

    #[test]
    fn a_cell_keeps_the_bandwidth_of_each_direction() {
        let Outcome::Measured(m) = bidirectional().outcome else {
            panic!("not measured");
        };
        let mut cells = Cells::new(vec!["a".to_owned(), "b".to_owned()], vec!["t".to_owned()]);
        let cell = Cell::measured(Pair::new(0, 1), 0, &m, Vec::new());
        cells.list.push(cell);
        let text = serde_json::to_string(&cells).unwrap();
        let fields = r#""to_server":294912000.0,"to_client":147456000.0"#;
        assert!(text.contains(fields), "{text}");
        assert_eq!(serde_json::from_str::<Cells>(&text).unwrap(), cells);
    }
}
