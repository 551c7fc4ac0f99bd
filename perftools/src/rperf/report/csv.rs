//! CSV output: one line per test.

use super::record::{Outcome, Record};

/// Header line with the names of the columns. Latencies are in nanoseconds, rates per second, sizes
/// in bytes, and costs in CPU seconds per gigabyte.
pub const HEADER: &str = "test,host,device,link,cm,msg_size,qps,threads,depth,bandwidth,send_bandwidth,msg_rate,latency_mean,latency_min,latency_p50,latency_p90,latency_p99,latency_p99_9,latency_p99_99,latency_max,sent_msgs,received_msgs,lost_msgs,local_cpu_seconds,remote_cpu_seconds,send_cost,recv_cost,error\n";

/// Formats a record as one line.
pub fn render(record: &Record) -> String {
    let mut cells = vec![
        record.test.name().to_owned(),
        record.host.clone().unwrap_or_default(),
    ];
    match &record.outcome {
        Outcome::Measured(m) => {
            let number = |value: Option<f64>| value.map_or_else(String::new, |v| format!("{v:.3}"));
            let integer = |value: Option<u64>| value.map_or_else(String::new, |v| v.to_string());
            let p = m.latency.as_ref();
            let (l, r) = (&m.local_stats, &m.remote_stats);
            cells.extend([
                m.local.device.clone(),
                m.local.link.clone(),
                m.local.cm.to_string(),
            ]);
            cells.extend([
                m.spec.msg_size.to_string(),
                m.spec.qps.to_string(),
                m.spec.threads.to_string(),
            ]);
            cells.push(m.depth.to_string());
            cells.extend([
                number(m.summary.bandwidth),
                number(m.summary.send_bandwidth),
            ]);
            cells.extend([number(Some(m.summary.msg_rate)), number(m.summary.latency)]);
            let percentiles = [
                p.map(|p| p.min),
                p.map(|p| p.p50),
                p.map(|p| p.p90),
                p.map(|p| p.p99),
                p.map(|p| p.p99_9),
            ];
            cells.extend(percentiles.map(integer));
            cells.extend([p.map(|p| p.p99_99), p.map(|p| p.max)].map(integer));
            cells.extend(
                [
                    l.sent.msgs + r.sent.msgs,
                    l.received.msgs + r.received.msgs,
                    l.lost + r.lost,
                ]
                .map(|n| n.to_string()),
            );
            cells.extend([l.cpu.process, r.cpu.process].map(|secs| format!("{secs:.6}")));
            cells.extend([
                number(m.summary.send_cost),
                number(m.summary.recv_cost),
                String::new(),
            ]);
        }
        Outcome::Failed { error } => {
            cells.resize(HEADER.split(',').count() - 1, String::new());
            cells.push(error.clone());
        }
        _ => cells.resize(HEADER.split(',').count(), String::new()),
    }
    cells
        .iter()
        .map(|cell| quoted(cell))
        .collect::<Vec<_>>()
        .join(",")
        + "\n"
}

/// Quotes a cell if it contains a comma, a quotation mark or a line break.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::text::tests::{latency, one_way};
    use crate::rperf::spec::test::Test;

    #[test]
    fn every_line_has_a_cell_per_column() {
        let failed = Record {
            test: Test::RcBw,
            host: None,
            outcome: Outcome::Failed {
                error: "a \"b\" c".into(),
            },
        };
        for record in [one_way(), latency(), failed.clone()] {
            let line = render(&record);
            assert_eq!(
                line.matches(',').count(),
                HEADER.matches(',').count(),
                "{line}"
            );
        }
        assert!(render(&failed).ends_with(",\"a \"\"b\"\" c\"\n"));
        assert!(
            render(&one_way())
                .starts_with("rc_bw,node1,rxe0,RoCE v2,true,65536,1,1,128,351764480.000,")
        );
    }
}
