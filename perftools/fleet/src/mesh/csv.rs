//! CSV output of a mesh: one line per cell.

use serde::Serialize;

use super::record::MeshRecord;

/// The values of a cell, in the order of the columns. Bandwidths are in bytes per second,
/// latencies in nanoseconds.
#[derive(Debug, Serialize)]
struct Row<'a> {
    from: &'a str,
    to: &'a str,
    test: &'a str,
    bandwidth: Option<f64>,
    to_server: Option<f64>,
    to_client: Option<f64>,
    latency: Option<f64>,
    latency_min: Option<u64>,
    latency_p99: Option<u64>,
    latency_max: Option<u64>,
    sent_msgs: Option<u64>,
    received_msgs: Option<u64>,
    lost_msgs: Option<u64>,
    exceeded: String,
    error: Option<&'a str>,
}

/// Formats a header line and all cells.
///
/// # Panics
/// Never: a row has only values that CSV supports, and memory is written without errors.
pub fn render(record: &MeshRecord) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for cell in &record.cells.list {
        let named = record.cells.named(cell);
        let (p, c) = (named.percentiles.as_ref(), named.counters.as_ref());
        let row = Row {
            from: &named.from,
            to: &named.to,
            test: &named.test,
            bandwidth: named.bandwidth,
            to_server: named.to_server,
            to_client: named.to_client,
            latency: named.latency,
            latency_min: p.map(|p| p.min),
            latency_p99: p.map(|p| p.p99),
            latency_max: p.map(|p| p.max),
            sent_msgs: c.map(|c| c.sent),
            received_msgs: c.map(|c| c.received),
            lost_msgs: c.map(|c| c.lost),
            exceeded: named.exceeded.join("; "),
            error: named.error.as_deref(),
        };
        writer.serialize(row).expect("plain values");
    }
    let bytes = writer.into_inner().expect("a vector");
    String::from_utf8(bytes).expect("UTF-8 cells")
}
