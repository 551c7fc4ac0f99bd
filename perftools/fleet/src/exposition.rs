//! Metrics in the formats that Prometheus reads.
//!
//! [`encode`] writes OpenMetrics, or the older text format of Prometheus, which the textfile
//! collector of node_exporter and `promtool check metrics` require. They differ in the declarations
//! of counters and of information, and in the end of the document.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeLabelSet, EncodeMetric, MetricEncoder, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The format of an exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format of Prometheus, version 0.0.4.
    Text,
}

impl Format {
    /// Returns the format that an `Accept` header requests.
    pub(crate) fn from_accept(accept: &str) -> Self {
        if accept.contains("application/openmetrics-text") {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Returns the media type.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// A program's metrics at the time of a request.
pub trait MetricSource: fmt::Debug + Send + Sync + 'static {
    /// Writes all families.
    fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result;
}

/// Writes families of metrics.
#[derive(Debug)]
pub struct Metrics<'a>(DescriptorEncoder<'a>);

impl Metrics<'_> {
    /// Writes a family of counters. `name` is without `_total`.
    pub(crate) fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(l, v)| (l, ConstCounter::new(v)));
        self.family(name, help, MetricType::Counter, samples)
    }

    /// Writes a family of counters of seconds, from nanoseconds. `name` is without `_total`.
    pub(crate) fn seconds_counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let samples = samples
            .into_iter()
            .map(|(l, nanos)| (l, ConstCounter::new(seconds(nanos))));
        self.family(name, help, MetricType::Counter, samples)
    }

    /// Writes a family of gauges.
    pub(crate) fn gauges<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let samples = samples.into_iter().map(|(l, v)| (l, ConstGauge::new(v)));
        self.family(name, help, MetricType::Gauge, samples)
    }

    /// Writes a family of information, whose values are labels. `name` is without `_info`.
    pub(crate) fn infos<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = L>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self
            .0
            .encode_descriptor(name, help, None, MetricType::Info)?;
        samples.try_for_each(|labels| family.encode_info(&labels))
    }

    /// Writes a family of histograms of seconds. Each sample has the sum, and the number of values
    /// between the previous bound and each bound. The last bound is infinite.
    pub(crate) fn histograms<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, f64, Vec<(f64, u64)>)>,
    ) -> fmt::Result {
        let samples = samples
            .into_iter()
            .map(|(labels, sum, buckets)| (labels, Buckets { sum, buckets }));
        self.family(name, help, MetricType::Histogram, samples)
    }

    /// Writes a family, unless it has no samples.
    fn family<L: EncodeLabelSet, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl IntoIterator<Item = (L, M)>,
    ) -> fmt::Result {
        let mut samples = samples.into_iter().peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        samples.try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
    }
}

/// The values of a histogram.
struct Buckets {
    sum: f64,
    buckets: Vec<(f64, u64)>,
}

impl EncodeMetric for Buckets {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let count = self.buckets.iter().map(|(_, n)| n).sum();
        encoder.encode_histogram::<[(&str, &str); 0]>(self.sum, count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

/// Converts nanoseconds to seconds.
#[allow(clippy::cast_precision_loss, reason = "a metric is a 64-bit float")]
pub(crate) fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Adapts a [`MetricSource`] to a registry.
#[derive(Debug)]
struct Adapter<S>(S);

impl<S: MetricSource> Collector for Adapter<S> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0.write(&mut Metrics(encoder))
    }
}

/// Returns the metrics of a source.
pub fn encode(source: impl MetricSource, format: Format) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Adapter(source)));
    let mut exposition = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut exposition, &registry);
    match format {
        Format::OpenMetrics => exposition,
        Format::Text => to_text_format(&exposition),
    }
}

/// Converts OpenMetrics to the text format: counters and information are declared with the suffix
/// of their samples, and units and the end are omitted.
fn to_text_format(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = "";
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map_or("", |(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            for part in [
                "# HELP ",
                name,
                suffix,
                " ",
                help,
                "\n# TYPE ",
                name,
                suffix,
                " ",
                kind,
                "\n",
            ] {
                text.push_str(part);
            }
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Example;

    impl MetricSource for Example {
        fn write(&self, metrics: &mut Metrics<'_>) -> fmt::Result {
            metrics.infos("rdma_port", "Port.", [[("netdev", "a\"b\\c\nd")]])?;
            metrics.counters("sent", "Sent.", [([("path", "x")], u64::MAX)])?;
            metrics.seconds_counters(
                "time_seconds",
                "Time.",
                [([("path", "x")], 1_500_000_000)],
            )?;
            metrics.gauges("up", "Up.", [([("path", "x")], 1.0)])?;
            let buckets = vec![(0.001, 2), (f64::INFINITY, 1)];
            metrics.histograms("rtt_seconds", "RTT.", [([("path", "x")], 0.5, buckets)])?;
            metrics.gauges("empty", "Empty.", Vec::<([(&str, &str); 0], f64)>::new())
        }
    }

    #[test]
    fn open_metrics_declares_names_without_suffixes() {
        insta::assert_snapshot!(encode(Example, Format::OpenMetrics), @r##"
        # HELP rdma_port Port.
        # TYPE rdma_port info
        rdma_port_info{netdev="a\"b\\c\nd"} 1
        # HELP sent Sent.
        # TYPE sent counter
        sent_total{path="x"} 18446744073709551615
        # HELP time_seconds Time.
        # TYPE time_seconds counter
        time_seconds_total{path="x"} 1.5
        # HELP up Up.
        # TYPE up gauge
        up{path="x"} 1.0
        # HELP rtt_seconds RTT.
        # TYPE rtt_seconds histogram
        rtt_seconds_sum{path="x"} 0.5
        rtt_seconds_count{path="x"} 3
        rtt_seconds_bucket{le="0.001",path="x"} 2
        rtt_seconds_bucket{le="+Inf",path="x"} 3
        # EOF
        "##);
    }

    #[test]
    fn text_format_declares_names_with_suffixes() {
        insta::assert_snapshot!(encode(Example, Format::Text), @r##"
        # HELP rdma_port_info Port.
        # TYPE rdma_port_info gauge
        rdma_port_info{netdev="a\"b\\c\nd"} 1
        # HELP sent_total Sent.
        # TYPE sent_total counter
        sent_total{path="x"} 18446744073709551615
        # HELP time_seconds_total Time.
        # TYPE time_seconds_total counter
        time_seconds_total{path="x"} 1.5
        # HELP up Up.
        # TYPE up gauge
        up{path="x"} 1.0
        # HELP rtt_seconds RTT.
        # TYPE rtt_seconds histogram
        rtt_seconds_sum{path="x"} 0.5
        rtt_seconds_count{path="x"} 3
        rtt_seconds_bucket{le="0.001",path="x"} 2
        rtt_seconds_bucket{le="+Inf",path="x"} 3
        "##);
    }

    #[test]
    fn format_is_negotiated() {
        let prometheus =
            "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5";
        assert_eq!(Format::from_accept(prometheus), Format::OpenMetrics);
        assert_eq!(Format::from_accept("text/plain"), Format::Text);
        assert_eq!(Format::from_accept(""), Format::Text);
    }
}
