//! `ribinfo export`: the state of a host as metrics for Prometheus.
//!
//! Each request reads the counters and the state of the links again (`host_metrics`). The checks
//! take longer, because they open the devices and query the packet filter. They run at an interval,
//! and a request gets their latest result (`findings`).

mod findings;
mod host_metrics;
mod port_counters;
mod processes;

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use base::error::Result;
use base::log::{self, log};
use base::threads::spawn_scoped;
use checks::selection::Selection;
use findings::CheckResults;
use host::root::Root;
use host_metrics::HostMetrics;
use ipnet::IpNet;

use crate::exposition::{self, Format};
use crate::http::{ListenAddr, MetricsServer};

/// Shortest time between two runs of the checks.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Options of the metrics of a host.
#[derive(Clone, Debug)]
pub struct ExportOptions {
    /// Address of the HTTP server; none: the metrics are returned once.
    pub listen: Option<ListenAddr>,
    /// Networks whose clients are answered; empty: all of them.
    pub allow: Vec<IpNet>,
    /// Time between two runs of the checks.
    pub check_interval: Duration,
    /// The checks whose findings are metrics; none: this host is not checked.
    pub checks: Option<Selection>,
}

/// Returns the metrics in the text format of Prometheus.
pub fn text(root: &Root, options: &ExportOptions) -> String {
    let checks = options.checks.as_ref();
    let checks = checks.map(|selection| Arc::new(CheckResults::run(root, selection)));
    exposition::encode(HostMetrics::read(root, checks), Format::Text)
}

/// Serves the metrics until the program is interrupted.
pub fn serve(root: &Root, options: &ExportOptions) -> Result<()> {
    let Some(listen) = options.listen else {
        return Ok(());
    };
    let server = MetricsServer::bind("ribinfo", listen, options.allow.clone())?;
    server.stopper().stop_on_signals()?;
    log::start_writer("ribinfo")?;
    let address = server.local_addr()?;
    log(format_args!("ribinfo: metrics on http://{address}/metrics"));
    let latest = Latest::default();
    std::thread::scope(|scope| {
        if let Some(checks) = &options.checks {
            spawn_scoped(scope, "checks", || {
                latest.update(root, checks, options.check_interval);
            })?;
        }
        let served = server.run(&|format| {
            let checks = latest.results();
            exposition::encode(HostMetrics::read(root, checks), format)
        });
        latest.stop();
        served
    })
}

/// The latest results of the checks, which a thread updates.
#[derive(Debug, Default)]
struct Latest {
    state: Mutex<LatestState>,
    stopped: Condvar,
}

#[derive(Debug, Default)]
struct LatestState {
    results: Option<Arc<CheckResults>>,
    is_stopped: bool,
}

impl Latest {
    fn results(&self) -> Option<Arc<CheckResults>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.results.clone()
    }

    fn stop(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_stopped = true;
        self.stopped.notify_all();
    }

    /// Runs the checks at their interval until it is stopped.
    fn update(&self, root: &Root, selection: &Selection, interval: Duration) {
        let interval = interval.max(MIN_CHECK_INTERVAL);
        loop {
            let results = Arc::new(CheckResults::run(root, selection));
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.results = Some(results);
            let waited = self
                .stopped
                .wait_timeout_while(state, interval, |state| !state.is_stopped);
            if waited.unwrap_or_else(PoisonError::into_inner).0.is_stopped {
                return;
            }
        }
    }
}
