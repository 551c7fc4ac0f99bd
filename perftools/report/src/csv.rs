//! CSV output: one line per test. A test over several devices has a line for the sum, followed by
//! one for each device.

use serde::Serialize;

use super::record::{DeviceResult, Measured, Outcome, Record};

/// Columns of a line. Latencies are in nanoseconds, rates per second, sizes in bytes, and costs in
/// CPU seconds per gigabyte. A cell without a value is unknown or does not apply to the test.
#[derive(Default, Serialize)]
struct Row<'a> {
    test: &'static str,
    host: Option<&'a str>,
    device: Option<&'a str>,
    link: Option<&'a str>,
    cm: Option<bool>,
    msg_size: Option<u64>,
    qps: Option<u32>,
    threads: Option<u32>,
    depth: Option<u32>,
    bandwidth: Option<String>,
    send_bandwidth: Option<String>,
    to_server: Option<String>,
    to_client: Option<String>,
    msg_rate: Option<String>,
    latency_mean: Option<String>,
    latency_min: Option<u64>,
    latency_p50: Option<u64>,
    latency_p90: Option<u64>,
    latency_p99: Option<u64>,
    latency_p99_9: Option<u64>,
    latency_p99_99: Option<u64>,
    latency_max: Option<u64>,
    sent_msgs: Option<u64>,
    received_msgs: Option<u64>,
    lost_msgs: Option<u64>,
    local_cpu_seconds: Option<String>,
    remote_cpu_seconds: Option<String>,
    send_cost: Option<String>,
    recv_cost: Option<String>,
    started: Option<&'a str>,
    local_host: Option<&'a str>,
    remote_host: Option<&'a str>,
    parameters: String,
    partial: Option<bool>,
    exceeded: String,
    error: Option<&'a str>,
}

impl<'a> Row<'a> {
    fn without_results(record: &'a Record) -> Self {
        let parameters = record.parameters.iter();
        Self {
            test: record.test.name(),
            host: record.host.as_deref(),
            started: record.started.as_deref(),
            parameters: parameters
                .map(|p| format!("{}={}", p.name, p.value))
                .collect::<Vec<_>>()
                .join(" "),
            ..Self::default()
        }
    }

    fn new(record: &'a Record) -> Self {
        let row = Self::without_results(record);
        match &record.outcome {
            Outcome::Measured(m) => row.with_results(m),
            Outcome::Failed { error } => Self {
                error: Some(error),
                ..row
            },
            Outcome::Conf { .. } | Outcome::Quit => row,
        }
    }

    fn with_results(self, m: &'a Measured) -> Self {
        let number = |value: Option<f64>| value.map(|v| format!("{v:.3}"));
        let p = m.latency.as_ref();
        let (l, r) = (&m.local_stats, &m.remote_stats);
        let seconds = |secs: Option<f64>| secs.map(|secs| format!("{secs:.6}"));
        Self {
            device: Some(&m.local.device),
            link: Some(&m.local.link),
            cm: Some(m.local.cm),
            msg_size: Some(m.spec.msg_size),
            qps: Some(m.spec.qps),
            threads: Some(m.spec.threads),
            depth: Some(m.depth),
            bandwidth: number(m.summary.bandwidth),
            send_bandwidth: number(m.summary.send_bandwidth),
            to_server: number(m.summary.to_server),
            to_client: number(m.summary.to_client),
            msg_rate: number(Some(m.summary.msg_rate)),
            latency_mean: number(m.summary.latency),
            latency_min: p.map(|p| p.min),
            latency_p50: p.map(|p| p.p50),
            latency_p90: p.map(|p| p.p90),
            latency_p99: p.map(|p| p.p99),
            latency_p99_9: p.map(|p| p.p99_9),
            latency_p99_99: p.map(|p| p.p99_99),
            latency_max: p.map(|p| p.max),
            sent_msgs: Some(l.sent.msgs + r.sent.msgs),
            received_msgs: Some(l.received.msgs + r.received.msgs),
            lost_msgs: Some(l.lost + r.lost),
            local_cpu_seconds: seconds(l.cpu.process),
            remote_cpu_seconds: seconds(r.cpu.process),
            send_cost: number(m.summary.send_cost),
            recv_cost: number(m.summary.recv_cost),
            local_host: m.local_host.as_ref().map(|host| host.node.as_str()),
            remote_host: m.remote_host.as_ref().map(|host| host.node.as_str()),
            partial: Some(m.partial),
            exceeded: m.exceeded.join("; "),
            ..self
        }
    }
}

/// Returns the header line with the names of the columns.
pub fn header() -> String {
    write(Row::default(), true)
        .split_inclusive('\n')
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// Formats a record as one line, or as several if it has several devices.
pub fn render(record: &Record) -> String {
    let mut text = write(Row::new(record), false);
    if let Outcome::Measured(m) = &record.outcome {
        for DeviceResult {
            device, measured, ..
        } in &m.devices
        {
            let row = Row::without_results(record).with_results(measured);
            let row = Row {
                device: Some(device),
                local_host: m.local_host.as_ref().map(|host| host.node.as_str()),
                remote_host: m.remote_host.as_ref().map(|host| host.node.as_str()),
                ..row
            };
            text += &write(row, false);
        }
    }
    text
}

/// Writes one row, after the header line if `has_headers` is set.
///
/// # Panics
/// Never: a row has only values that CSV supports, and memory is written without errors.
fn write(row: Row<'_>, has_headers: bool) -> String {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(has_headers)
        .from_writer(Vec::new());
    writer.serialize(row).expect("plain values");
    let bytes = writer.into_inner().expect("a vector");
    String::from_utf8(bytes).expect("UTF-8 cells")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::devices::tests::two_devices;
    use crate::samples::{bidirectional, flipped, latency, one_way};
    use measure::spec::Parameter;
    use measure::spec::test::Test;

    #[test]
    fn every_line_has_a_cell_per_column() {
        let outcome = Outcome::Failed {
            error: "a \"b\", c\nd".into(),
        };
        let mut failed = Record::new(Test::RcBw, None, outcome);
        failed.parameters = vec![Parameter {
            name: "traffic-class".into(),
            value: "32".into(),
        }];
        let columns = header().split(',').count();
        for record in [one_way(), latency(), failed.clone()] {
            let line = render(&record);
            let mut reader = csv::ReaderBuilder::new()
                .has_headers(false)
                .from_reader(line.as_bytes());
            let cells = reader.records().next().unwrap().unwrap();
            assert_eq!(cells.len(), columns, "{line}");
        }
        let line = render(&failed);
        assert!(line.ends_with(",\"a \"\"b\"\", c\nd\"\n"), "{line}");
        assert!(line.contains(",traffic-class=32,"), "{line}");
        assert!(
            render(&one_way())
                .starts_with("rc_bw,node1,rxe0,RoCE v2,true,65536,1,1,128,351764480.000,")
        );
    }

    #[test]
    fn each_device_has_a_line_after_the_sum() {
        let text = render(&two_devices(one_way()));
        let devices = csv::ReaderBuilder::new()
            .has_headers(false)
            .from_reader(text.as_bytes())
            .records()
            .map(|row| row.unwrap()[2].to_owned())
            .collect::<Vec<_>>();
        assert_eq!(devices, ["rxe0,rxe1", "rxe0", "rxe1"]);
        assert!(
            text.contains(",527646720.000,") && text.contains(",175882240.000,"),
            "{text}"
        );
    }

    #[test]
    fn each_direction_has_a_cell() {
        let cells = |record: &Record| {
            let text = header() + &render(record);
            let mut reader = csv::Reader::from_reader(text.as_bytes());
            let headers = reader.headers().unwrap().clone();
            let row = reader.records().next().unwrap().unwrap();
            ["to_server", "to_client"].map(|name| {
                let column = headers.iter().position(|header| header == name).unwrap();
                row[column].to_owned()
            })
        };
        assert_eq!(cells(&bidirectional()), ["294912000.000", "147456000.000"]);
        assert_eq!(cells(&one_way()), ["351764480.000", ""]);
        assert_eq!(cells(&flipped()), ["", "351764480.000"]);
        assert_eq!(cells(&latency()), ["", ""]);
    }

    #[test]
    fn the_columns_keep_their_names_and_order() {
        insta::assert_snapshot!(header());
    }
}
