//! The figures of a test that are compared.

use base::units::{Figure, Style};

use super::record::Measured;

/// A figure of a test that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Bandwidth in bytes per second.
    Bandwidth,
    /// Bandwidth towards the server, of a test in both directions.
    ToServer,
    /// Bandwidth towards the client, of a test in both directions.
    ToClient,
    /// Messages per second.
    MsgRate,
    /// Median latency in nanoseconds.
    LatencyP50,
}

impl Metric {
    /// Returns the name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::ToServer => "to_server",
            Self::ToClient => "to_client",
            Self::MsgRate => "msg_rate",
            Self::LatencyP50 => "latency_p50",
        }
    }

    /// Formats a value with its unit.
    pub(crate) fn format(self, value: f64) -> Figure {
        let style = Style::default();
        match self {
            Self::Bandwidth | Self::ToServer | Self::ToClient => style.bandwidth(value),
            Self::MsgRate => style.rate(value),
            Self::LatencyP50 => style.time(value),
        }
    }
}

/// Returns a test's main result, and the bandwidths of a test in both directions.
#[allow(clippy::cast_precision_loss)] // Nanoseconds below 2^53.
pub(crate) fn results(m: &Measured) -> impl Iterator<Item = (Metric, f64)> {
    let main = match (&m.latency, m.plan, m.summary.bandwidth) {
        (Some(p), ..) => Some((Metric::LatencyP50, p.p50 as f64)),
        (None, Some(plan), _) if plan.verb.is_atomic() => {
            Some((Metric::MsgRate, m.summary.msg_rate))
        }
        (None, _, bandwidth) => bandwidth.map(|b| (Metric::Bandwidth, b)),
    };
    let both = m.summary.to_server.zip(m.summary.to_client);
    let both = both.map(|(to, from)| [(Metric::ToServer, to), (Metric::ToClient, from)]);
    main.into_iter().chain(both.into_iter().flatten())
}
