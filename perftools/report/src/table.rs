//! Table output for sweeps: a row per run and a heading per test.

use measure::spec::test::Test;

use super::record::{DeviceResult, Measured, Outcome, Record};
use super::text::Format;

/// A cell of a row: the name of its column and its value.
type TableCell = (String, String);

/// Value of a cell that is unknown.
const UNKNOWN: &str = "-";

/// A table that is printed row by row.
#[derive(Clone, Debug)]
pub struct Table {
    format: Format,
    /// Test and names of the columns of the previous row.
    heading: Option<(Test, Vec<String>)>,
}

impl Table {
    /// Creates an empty table. With [`Verbosity::time`](super::text::Verbosity::time) it has
    /// columns for the CPU cost of a gigabyte.
    pub fn new(format: Format) -> Self {
        Self {
            format,
            heading: None,
        }
    }

    /// Formats the row of a record, and a row for each of several devices. A heading precedes the
    /// first row of each test, and each row whose columns differ from those of the previous row.
    pub fn render(&mut self, record: &Record) -> String {
        let Outcome::Measured(m) = &record.outcome else {
            return String::new();
        };
        if m.devices.is_empty() {
            return self.row(record, m, &m.local.to_string(), None);
        }
        let via = &m.local.device;
        let whole = if m.spec.test.is_latency() {
            "worst"
        } else {
            "sum"
        };
        let mut text = self.row(record, m, via, Some(whole));
        for DeviceResult {
            device, measured, ..
        } in &m.devices
        {
            text += &self.row(record, measured, via, Some(device));
        }
        text
    }

    /// Formats a row, with the name of a device if the table has rows of several.
    fn row(&mut self, record: &Record, m: &Measured, via: &str, device: Option<&str>) -> String {
        let mut cells = self.parameters(record, m);
        cells.extend(device.map(|device| cell("device", device)));
        cells.extend(if m.spec.test.is_latency() {
            self.latencies(m)
        } else {
            self.bandwidths(m)
        });
        let (names, values): (Vec<_>, Vec<_>) = cells.into_iter().unzip();
        let widths: Vec<usize> = names.iter().map(|name| width(name)).collect();
        let line = |cells: &[String]| {
            let cells = cells.iter().zip(&widths);
            let cells: Vec<String> = cells.map(|(c, width)| format!(" {c:>width$}")).collect();
            cells.concat() + "\n"
        };
        let heading = Some((record.test, names));
        let mut out = String::new();
        if self.heading != heading {
            self.heading = heading;
            let names = self.heading.iter().flat_map(|heading| &heading.1);
            let names: Vec<String> = names.cloned().collect();
            out = format!("{}:  {via}\n{}", record.test.name(), line(&names));
        }
        let partial = if m.partial { "  (partial)" } else { "" };
        out + line(&values).trim_end() + partial + "\n"
    }

    /// Returns the columns of the parameters: the size, the depth, and those that the sweep varies.
    fn parameters(&self, record: &Record, m: &Measured) -> Vec<TableCell> {
        let mut cells = vec![
            cell("size", self.format.style.size(m.spec.msg_size)),
            cell("depth", m.depth),
        ];
        let varied = |name: &str| record.parameters.iter().any(|p| p.name == name);
        if m.spec.qps > 1 && !varied("qps") {
            cells.push(cell("qps", m.spec.qps));
        }
        if m.spec.threads > 1 && !varied("threads") {
            cells.push(cell("threads", m.spec.threads));
        }
        // The first two columns show the size and the negotiated depth.
        let others = record.parameters.iter();
        let others = others.filter(|p| !["msg-size", "depth"].contains(&p.name.as_str()));
        cells.extend(others.map(|p| cell(&p.name, &p.value)));
        cells
    }

    #[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
    fn latencies(&self, m: &Measured) -> Vec<TableCell> {
        let style = self.format.style;
        let p = m.latency.as_ref();
        let time = |nanos: Option<f64>| {
            nanos.map_or_else(|| UNKNOWN.to_owned(), |n| style.time(n).to_string())
        };
        vec![
            cell("min", time(p.map(|p| p.min as f64))),
            cell("p50", time(p.map(|p| p.p50 as f64))),
            cell("p99", time(p.map(|p| p.p99 as f64))),
            cell("p99.9", time(p.map(|p| p.p99_9 as f64))),
            cell("max", time(p.map(|p| p.max as f64))),
            cell("mean", time(p.map(|p| p.mean))),
        ]
    }

    fn bandwidths(&self, m: &Measured) -> Vec<TableCell> {
        let style = self.format.style;
        let messages = m.local_stats.sent.msgs + m.local_stats.received.msgs;
        let bandwidth = m.summary.bandwidth;
        let mut cells = vec![
            cell("messages", style.count(messages)),
            cell(
                "bw",
                bandwidth.map_or_else(|| UNKNOWN.to_owned(), |b| style.bandwidth(b).to_string()),
            ),
            cell("msg_rate", style.rate(m.summary.msg_rate)),
        ];
        let directions = m.directions();
        cells.extend(directions.map(|(name, bw)| cell(name, style.bandwidth(bw))));
        if self.format.verbosity.time > 0 && !m.is_bidirectional() {
            for (name, cost) in [
                ("send_cost", m.summary.send_cost),
                ("recv_cost", m.summary.recv_cost),
            ] {
                // The kernel counts CPU time in ticks of 10 ms, so a short run can have a cost of
                // 0.
                let cost = cost.filter(|cost| *cost > 0.0);
                let text = cost.map_or_else(|| UNKNOWN.to_owned(), |c| style.cost(c).to_string());
                cells.push(cell(name, text));
            }
        }
        if m.spec.test.may_lose() {
            cells.push(cell("lost", m.local_stats.lost + m.remote_stats.lost));
        }
        cells
    }
}

/// Returns the width of a column: that of its name, or of a usual value.
fn width(name: &str) -> usize {
    let value = match name {
        "messages" | "bw" | "to_server" | "to_client" | "msg_rate" | "send_cost" | "recv_cost" => {
            11
        }
        _ => 9,
    };
    name.len().max(value)
}

#[allow(clippy::needless_pass_by_value)] // Values of any kind, most of them temporary.
fn cell(name: &str, value: impl ToString) -> TableCell {
    (name.to_owned(), value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::tests::two_devices;
    use crate::samples::{bidirectional, flipped, latency, one_way};
    use crate::text::Verbosity;
    use measure::spec::Parameter;
    use test_support::text::assert_contains;

    /// Returns the record of a run of a sweep.
    fn swept(name: &str, value: &str, change: impl FnOnce(&mut Measured)) -> Record {
        let mut record = one_way();
        record.parameters = vec![Parameter {
            name: name.into(),
            value: value.into(),
        }];
        if let Outcome::Measured(m) = &mut record.outcome {
            change(m);
        }
        record
    }

    /// Returns the words of each line.
    fn words(text: &str) -> Vec<Vec<&str>> {
        text.lines()
            .map(|l| l.split_whitespace().collect())
            .collect()
    }

    #[test]
    fn each_value_is_below_the_name_of_its_column() {
        let mut table = Table::new(Format::default());
        let text: String = [1, 2, 4]
            .map(|qps| {
                let record = swept("qps", &qps.to_string(), |m| m.spec.qps = qps);
                table.render(&record)
            })
            .concat();
        let lines = words(&text);
        assert_eq!(lines[1][..3], ["size", "depth", "qps"], "{text}");
        // Two lines of the heading, and a row of each run.
        assert_eq!(lines.len(), 5, "{text}");
        for (row, qps) in lines[2..].iter().zip(["1", "2", "4"]) {
            assert_eq!(row[..4], ["64", "KiB", "128", qps], "{text}");
        }
    }

    #[test]
    fn rows_with_two_swept_parameters_fit_into_100_columns() {
        for mut record in [one_way(), latency()] {
            record.parameters = ["qps", "burst"]
                .map(|name| Parameter {
                    name: name.into(),
                    value: "4096".into(),
                })
                .into();
            let text = Table::new(Format::default()).render(&record);
            assert!(
                text.lines().all(|line| line.chars().count() <= 100),
                "{text}"
            );
        }
    }

    #[test]
    fn any_swept_parameter_has_a_column() {
        let mut table = Table::new(Format::default());
        let text = table.render(&swept("traffic-class", "32", |m| {
            m.spec.tuning.traffic_class = 32;
        }));
        let lines = words(&text);
        assert_eq!(lines[1][2], "traffic-class", "{text}");
        assert_eq!(lines[2][3], "32", "{text}");
    }

    #[test]
    fn other_columns_have_a_heading_of_their_own() {
        let mut table = Table::new(Format::default());
        let mut text = table.render(&swept("qps", "1", |_| {}));
        text += &table.render(&swept("time", "1 s", |_| {}));
        assert_eq!(text.matches("rc_bw:").count(), 2, "{text}");
    }

    #[test]
    fn each_device_has_a_row_after_the_sum() {
        let text = Table::new(Format::default()).render(&two_devices(one_way()));
        let lines = words(&text);
        assert_eq!(lines[0], ["rc_bw:", "rxe0,rxe1"], "{text}");
        assert_eq!(lines[1][2], "device", "{text}");
        let devices: Vec<&str> = lines[2..].iter().map(|row| row[3]).collect();
        assert_eq!(devices, ["sum", "rxe0", "rxe1"], "{text}");
    }

    #[test]
    fn both_directions_and_a_reversed_one_have_columns() {
        let text = |record: &Record| Table::new(Format::default()).render(record);
        assert!(!text(&one_way()).contains("to_"));
        for (record, columns, figures) in [
            (
                bidirectional(),
                &["to_server", "to_client"][..],
                "295 MB/sec  147 MB/sec",
            ),
            (flipped(), &["to_client"], "352 MB/sec"),
        ] {
            let text = text(&record);
            let lines = words(&text);
            assert_eq!(lines[1][5..], *columns, "{text}");
            assert!(text.ends_with(&format!(" {figures}\n")), "{text}");
        }
    }

    #[test]
    fn unknown_results_are_a_dash() {
        let mut record = latency();
        if let Outcome::Measured(m) = &mut record.outcome {
            m.latency = None;
        }
        let text = Table::new(Format::default()).render(&record);
        let lines = words(&text);
        assert_eq!(lines[2][3..], ["-"; 6], "{text}");
        assert_eq!(lines[1][2..], ["min", "p50", "p99", "p99.9", "max", "mean"]);
    }

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
        assert_contains(&more, &["send_cost", "2.69 sec/GB"]);
    }
}
