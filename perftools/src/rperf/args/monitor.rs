//! The command line of `rperf monitor`.

use std::path::PathBuf;
use std::time::Duration;

use base::device_id::DeviceId;
use base::error::{Error, Result};
use base::ports;
use base::units::parse_time;
use clap::{CommandFactory, Parser};
use fleet::http::ListenAddr;
use fleet::monitor::tracker::MAX_FLOWS;
use ipnet::IpNet;

use super::Invocation;

/// Options of `rperf monitor`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf monitor",
    disable_help_flag = true,
    about = "Probe the paths from each device of this host to each device of other hosts"
)]
pub struct MonitorArgs {
    /// Hosts to monitor, as HOST, HOST:PORT or `[IPv6]:PORT`
    #[arg(value_name = "HOST[:PORT],…", value_delimiter = ',')]
    pub hosts: Vec<String>,
    /// Read the hosts from a file with one host, or HOST:PORT, per line
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub hosts_file: Option<PathBuf>,
    /// RDMA devices of this host that send probes, such as mlx5_0,mlx5_1 [default: all]
    #[arg(long, value_name = "DEV[:PORT],…", value_delimiter = ',')]
    pub devices: Vec<DeviceId>,
    /// Time between two probes of a path, in seconds
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "1")]
    pub interval: Duration,
    /// Time after which an answer is late
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "500ms")]
    pub timeout: Duration,
    /// Number of successive probes without an answer in time after which a path is lost
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=100))]
    pub lost_after: u8,
    /// Number of flow labels of a path; switches distribute them over equal routes
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=i64::from(MAX_FLOWS)))]
    pub flows: u8,
    /// Maximum number of probes per second from a device; with more paths, the interval is longer
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub max_rate: u32,
    /// Serve metrics for Prometheus over HTTP at /metrics
    #[arg(long, value_name = "[ADDRESS:]PORT")]
    pub listen: Option<ListenAddr>,
    /// Answer only requests for metrics from these networks and from this host; may be repeated
    /// [default: answer all]
    #[arg(long, value_name = "CIDR", value_delimiter = ',', requires = "listen")]
    pub allow: Vec<IpNet>,
    /// Print changes and results, each as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// With --json, time between two lines of a path with its results
    #[arg(long, value_name = "TIME", value_parser = parse_time, default_value = "60", requires = "json")]
    pub report_interval: Duration,
    /// Also send probes to addresses in these networks; may be repeated [default: send them only to
    /// addresses of the hosts]
    #[arg(long, value_name = "CIDR", value_delimiter = ',')]
    pub reflector_networks: Vec<IpNet>,
    /// Stop after this time [default: when a signal arrives]
    #[arg(long, short = 't', value_name = "TIME", value_parser = parse_time)]
    pub time: Option<Duration>,
    /// TCP port of the rperf servers
    #[arg(long, value_name = "PORT", default_value_t = ports::CONTROL)]
    pub port: u16,
    /// File with the shared secret of the servers
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
The hosts run `rperf` servers, which answer the probes. Each RDMA port of this host probes each RDMA
port of the hosts with the same kind of link. Ports of iWARP and hosts without RDMA use UDP.

Exit status:
  0    a signal stopped the monitor, or the time of -t is over and all paths are up
  1    a path is not up when the time of -t is over, or the monitor failed
  2    the command line is invalid
";

/// Returns the command with the text after its options.
pub(super) fn command() -> clap::Command {
    MonitorArgs::command().after_help(AFTER_HELP)
}

/// Parses `monitor [OPTIONS] HOST,…`.
pub(super) fn parse(args: &[String]) -> Result<Invocation> {
    let words = std::iter::once("rperf monitor").chain(args.iter().map(String::as_str));
    let options = MonitorArgs::try_parse_from(words).map_err(|e| crate::usage::error(&e))?;
    if options.hosts.is_empty() && options.hosts_file.is_none() {
        return Err(Error::usage("no hosts")
            .with_help("name the hosts, as in `rperf monitor node1,node2`, or use --hosts-file"));
    }
    for (option, time) in [
        ("--interval", options.interval),
        ("--timeout", options.timeout),
        ("--report-interval", options.report_interval),
    ] {
        if time < Duration::from_millis(1) || time > Duration::from_secs(3600) {
            return Err(Error::usage(format!(
                "{option} must be between 1 ms and 1 hour"
            )));
        }
    }
    Ok(Invocation::Monitor(Box::new(options)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_monitor_name_the_remedy() {
        for (line, expected) in [
            ("", "--hosts-file"),
            ("a --hosts-file f", "--hosts-file"),
            ("a --flows 9", "1..=8"),
            ("a --lost-after 0", "1..=100"),
            ("a --interval 0", "between 1 ms and 1 hour"),
            ("a --allow 10.0.0.0/8", "--listen"),
            ("a --report-interval 5", "--json"),
            ("a --listen x", "expected PORT"),
        ] {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            let error = parse(&words).map(|_| ()).unwrap_err();
            assert_eq!(error.exit_status(), 2, "{line}");
            assert!(error.to_string().contains(expected), "{line}: {error}");
        }
        let words: Vec<String> = ["a,b:5", "--interval", "100ms"].map(str::to_owned).into();
        let Ok(Invocation::Monitor(options)) = parse(&words) else {
            panic!("a valid command line")
        };
        assert_eq!(options.hosts, ["a", "b:5"]);
        assert_eq!(options.interval, Duration::from_millis(100));
    }
}
