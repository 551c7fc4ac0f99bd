//! Runs `rperf monitor`.

use std::collections::HashSet;
use std::time::Duration;

use base::error::{Error, Result};
use fleet::mesh::hosts;
use fleet::monitor::registration::{Hosts, MonitoredHost};
use fleet::monitor::run::{self, MonitorConfig};
use fleet::monitor::tracker::MonitorSettings;
use measure::spec::test::Test;
use session::protocol::token::Token;

use crate::rperf::args::monitor::MonitorArgs;

/// Shortest time after which a probe is lost.
const MIN_LATE_LIMIT: Duration = Duration::from_secs(2);

/// Probes all paths until a signal arrives or the time is over.
///
/// # Errors
/// Returns an error if a device cannot be used, or if a path is lost when the time is over.
pub(super) fn run(options: &MonitorArgs) -> Result<()> {
    let token = options.token_file.as_deref().map(Token::read).transpose()?;
    let networks = options.reflector_networks.clone();
    let settings = MonitorSettings {
        interval: options.interval,
        timeout: options.timeout,
        late_limit: (options.timeout * 4).max(MIN_LATE_LIMIT),
        lost_after: options.lost_after,
        flows: options.flows,
        max_rate: options.max_rate,
    };
    let config = MonitorConfig {
        devices: options.devices.clone(),
        settings,
        metrics: options.listen.map(|listen| (listen, options.allow.clone())),
        json: options.json,
        report_interval: options.report_interval,
        time: options.time,
    };
    run::run(Hosts::new(targets(options)?, token, networks), config)
}

fn targets(options: &MonitorArgs) -> Result<Vec<MonitoredHost>> {
    let hosts = match &options.hosts_file {
        Some(path) => hosts::read_file(path)?,
        None => options
            .hosts
            .iter()
            .map(|host| hosts::parse_host(host))
            .collect::<Result<_>>()?,
    };
    let mut seen = HashSet::new();
    let mut targets = Vec::new();
    for host in hosts {
        let name = match host.port {
            Some(port) => format!("{}:{port}", host.name),
            None => host.name.clone(),
        };
        if Test::is_name(&name) {
            return Err(Error::usage(format!(
                "a monitor runs no tests, but the command line names {name}"
            ))
            .with_help(format!("run `rperf HOST {name}`")));
        }
        if !seen.insert(name.clone()) {
            return Err(Error::usage(format!("{name} is named twice")));
        }
        targets.push(MonitoredHost {
            name: name.into(),
            host: host.name,
            port: host.port.unwrap_or(options.port),
        });
    }
    if targets.is_empty() {
        return Err(Error::usage("the list of hosts is empty")
            .with_help("name at least one host, as in `rperf monitor node1`"));
    }
    Ok(targets)
}
