//! Table output for sweeps: a row per run and a heading per test.

use super::record::{Measured, Outcome, Record};
use super::text::Format;
use crate::rperf::spec::test::Test;

/// A table that is printed row by row.
#[derive(Clone, Debug)]
pub struct Table {
    format: Format,
    test: Option<Test>,
}

impl Table {
    /// Creates an empty table. With [`Verbosity::time`](super::text::Verbosity::time) it has
    /// columns for the CPU cost of a gigabyte.
    pub fn new(format: Format) -> Self {
        Self { format, test: None }
    }

    /// Formats the row of a record. A heading precedes the first row of each test.
    pub fn render(&mut self, record: &Record) -> String {
        let Outcome::Measured(m) = &record.outcome else {
            return String::new();
        };
        let cells = self.cells(m);
        let line = |cells: Vec<String>| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:>14}")).collect();
            cells.concat() + "\n"
        };
        let heading = if self.test == Some(record.test) {
            String::new()
        } else {
            self.test = Some(record.test);
            let names = cells.iter().map(|cell| cell.0.to_owned()).collect();
            format!("{}:  {}\n{}", record.test.name(), m.local, line(names))
        };
        heading + &line(cells.into_iter().map(|cell| cell.1).collect())
    }

    /// Returns the column names and values of a row.
    fn cells(&self, m: &Measured) -> Vec<(&'static str, String)> {
        let style = self.format.style;
        let mut cells = vec![
            ("size", style.size(m.spec.msg_size).to_string()),
            ("depth", m.depth.to_string()),
        ];
        if m.spec.qps > 1 {
            cells.push(("qps", m.spec.qps.to_string()));
        }
        if m.spec.threads > 1 {
            cells.push(("threads", m.spec.threads.to_string()));
        }
        #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
        if let Some(p) = &m.latency {
            for (name, nanos) in [
                ("min", p.min),
                ("p50", p.p50),
                ("p99", p.p99),
                ("p99.9", p.p99_9),
                ("max", p.max),
            ] {
                cells.push((name, style.time(nanos as f64).to_string()));
            }
            cells.push(("mean", style.time(p.mean).to_string()));
            return cells;
        }
        cells.push((
            "messages",
            style
                .count(m.local_stats.sent.msgs + m.local_stats.received.msgs)
                .to_string(),
        ));
        cells.push((
            "bw",
            style
                .bandwidth(m.summary.bandwidth.unwrap_or(0.0))
                .to_string(),
        ));
        cells.push(("msg_rate", style.rate(m.summary.msg_rate).to_string()));
        if self.format.verbosity.time > 0 {
            for (name, cost) in [
                ("send_cost", m.summary.send_cost),
                ("recv_cost", m.summary.recv_cost),
            ] {
                // The kernel counts CPU time in ticks of 10 ms, so a short run can have a cost of
                // 0.
                let text = |cost: f64| {
                    if cost > 0.0 {
                        style.cost(cost).to_string()
                    } else {
                        "-".to_owned()
                    }
                };
                cells.extend(cost.map(|cost| (name, text(cost))));
            }
        }
        if m.spec.test.may_lose() {
            cells.push((
                "lost",
                (m.local_stats.lost + m.remote_stats.lost).to_string(),
            ));
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rperf::report::text::Verbosity;
    use crate::rperf::report::text::tests::{latency, one_way};

    #[test]
    fn tables_have_headings_per_test_and_rows_per_run() {
        let text = |format: Format| -> String {
            let mut table = Table::new(format);
            [one_way(), one_way(), latency()]
                .iter()
                .map(|record| table.render(record))
                .collect()
        };
        insta::assert_snapshot!(text(Format::default()));
        let verbosity = Verbosity {
            time: 1,
            ..Verbosity::default()
        };
        let more = text(Format {
            verbosity,
            ..Format::default()
        });
        assert!(
            more.contains("send_cost") && more.contains("2.69 sec/GB"),
            "{more}"
        );
    }
}
