//! Runs `rperf monitor`.

use std::collections::HashSet;
use std::io::{Write, stdout};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use base::interrupt::Interrupt;
use base::log::{self, log};
use base::peer_text::printable;
use base::threads::{spawn_scoped, spawn_scoped_with_stack};
use fleet::exposition;
use fleet::http::MetricsServer;
use fleet::mesh::hosts;
use fleet::monitor::lines::{self, MonitorContent, MonitorLine};
use fleet::monitor::metrics::MonitorMetrics;
use fleet::monitor::prober::{self, AssignReflector, LocalPort, ProbeTransport};
use fleet::monitor::qp_transport::QpTransport;
use fleet::monitor::registration::{
    Hosts, LocalPortHandle, LocalPortKind, MonitoredHost, is_suspect,
};
use fleet::monitor::tracker::{MonitorSettings, PathChange, PathState};
use fleet::monitor::udp_transport::UdpTransport;
use measure::spec::test::Test;
use measure::transport::LinkType;
use measure::transport::device::{self, OpenedDevice};
use session::probe::reflector::{HOST, preferred_ip};
use session::protocol::token::Token;

use crate::rperf::args::monitor::MonitorArgs;

/// Number of threads that request reflectors.
const WORKERS: usize = 16;
/// Stack of a thread that requests reflectors.
const STACK: usize = 256 << 10;
/// Shortest time after which a probe is lost.
const MIN_LATE_LIMIT: Duration = Duration::from_secs(2);
/// Interval at which the main thread checks whether to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A device of this host with its transport.
struct RunningProber {
    handle: LocalPortHandle,
    transport: Box<dyn ProbeTransport + Send>,
    targets: Receiver<AssignReflector>,
}

/// Probes all paths until a signal arrives or the time is over.
///
/// # Errors
/// Returns an error if a device cannot be used, or if a path is lost when the time is over.
pub(super) fn run(options: &MonitorArgs) -> Result<()> {
    let interrupt = Interrupt::on_signals()?;
    let token = options.token_file.as_deref().map(Token::read).transpose()?;
    let hosts = Arc::new(Hosts::new(
        targets(options)?,
        token,
        options.reflector_networks.clone(),
    ));
    let probers = open_probers(options)?;
    let server = options
        .listen
        .map(|listen| MetricsServer::bind("rperf", listen, options.allow.clone()))
        .transpose()?;
    log::start_writer("rperf")?;
    if let Some(server) = &server {
        let address = server.local_addr()?;
        log(format_args!("rperf: metrics on http://{address}/metrics"));
    }
    let names: Vec<&str> = probers
        .iter()
        .map(|p| p.handle.source.name.as_str())
        .collect();
    log(format_args!("rperf: monitoring from {}", names.join(", ")));
    let sources: Arc<Vec<Arc<LocalPort>>> = Arc::new(
        probers
            .iter()
            .map(|prober| Arc::clone(&prober.handle.source))
            .collect(),
    );
    let monitor = MonitorRun {
        hosts,
        sources,
        output: MonitorOutput {
            json: options.json,
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
        },
        interrupt,
        deadline: options.time.map(|time| Instant::now() + time),
        report_interval: options.json.then_some(options.report_interval),
    };
    monitor.run(probers, server.as_ref())?;
    conclude(&monitor)
}

/// A running monitor.
struct MonitorRun {
    hosts: Arc<Hosts>,
    sources: Arc<Vec<Arc<LocalPort>>>,
    output: MonitorOutput,
    interrupt: Interrupt,
    /// End of the run.
    deadline: Option<Instant>,
    /// Interval of the results as JSON lines.
    report_interval: Option<Duration>,
}

impl MonitorRun {
    /// Returns `true` if the time of the run is over.
    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|at| Instant::now() >= at)
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_set() || self.is_over() || self.output.failed.load(Ordering::Relaxed)
    }

    /// Runs all threads until the monitor is stopped.
    fn run(&self, probers: Vec<RunningProber>, server: Option<&MetricsServer>) -> Result<()> {
        let (mut handles, mut running) = (Vec::new(), Vec::new());
        for prober in probers {
            let source = Arc::clone(&prober.handle.source);
            running.push((source, prober.transport, prober.targets));
            handles.push(prober.handle);
        }
        let handles = &handles;
        std::thread::scope(|scope| {
            // The threads that have started end when the output has failed.
            let fail = |error: Error| {
                self.output.failed.store(true, Ordering::Relaxed);
                self.hosts.wake();
                error
            };
            for (source, mut transport, targets) in running {
                let probe = move || self.probe(&source, &mut *transport, &targets);
                spawn_scoped(scope, "prober", probe).map_err(fail)?;
            }
            for _ in 0..WORKERS {
                let work = move || {
                    let on_host = |name: &str, error: Option<&Error>| self.output.host(name, error);
                    self.hosts.work(handles, &on_host, &|| self.is_stopped());
                };
                spawn_scoped_with_stack(scope, "registration", STACK, work).map_err(fail)?;
            }
            let metrics = MonitorMetrics {
                sources: Arc::clone(&self.sources),
                hosts: Arc::clone(&self.hosts),
            };
            if let Some(server) = server {
                let serve =
                    move || server.run(&|format| exposition::encode(metrics.clone(), format));
                spawn_scoped(scope, "metrics", serve).map_err(fail)?;
            }
            self.report_until_stopped();
            if let Some(server) = server {
                server.stopper().stop();
            }
            self.hosts.wake();
            Ok(())
        })
    }

    /// Probes the paths of a device.
    fn probe(
        &self,
        source: &LocalPort,
        transport: &mut dyn ProbeTransport,
        targets: &Receiver<AssignReflector>,
    ) {
        let on_change = |source: &LocalPort, change: &PathChange, labels: &[u32]| {
            self.output.change(source, *change, labels);
            if is_suspect(change.to) {
                self.hosts
                    .hurry(&lines::path_id(source, change.path).target);
            }
        };
        let is_stopped = || self.is_stopped();
        if let Err(error) = prober::run(source, transport, targets, &on_change, &is_stopped) {
            log(format_args!("rperf: {}: {error}", source.name));
            source.state().error = Some(error.to_string());
        }
    }

    fn report_until_stopped(&self) {
        let mut reported = Instant::now();
        while !self.is_stopped() {
            std::thread::sleep(CHECK_INTERVAL);
            let is_due = |interval: Duration| reported.elapsed() >= interval;
            if self.report_interval.is_some_and(is_due) {
                reported = Instant::now();
                self.output.paths(&self.sources);
            }
        }
    }
}

/// Prints the results. Returns an error if a path is not up, or a host has none, when the time is
/// over.
fn conclude(monitor: &MonitorRun) -> Result<()> {
    let MonitorRun {
        output, sources, ..
    } = monitor;
    if output.json {
        output.paths(sources);
    } else {
        super::print(&lines::summary(sources))?;
    }
    if let Some(error) = output.take_error() {
        return Err(error);
    }
    if !monitor.is_over() {
        return Ok(());
    }
    let mut bad = 0;
    let mut found = HashSet::new();
    for source in sources.iter() {
        let paths = source.state().tracker.paths().to_vec();
        for (number, path) in (0..).zip(paths).filter(|(_, path)| path.is_enabled()) {
            bad += usize::from(path.state != PathState::Up);
            found.insert(lines::path_id(source, number).target);
        }
    }
    let names = monitor.hosts.names();
    let missing = names.iter().find(|name| !found.contains(&***name));
    match (bad, missing) {
        (0, None) => Ok(()),
        (0, Some(host)) => Err(Error::test(format!("no path to {host} was found"))),
        (n, _) => Err(Error::test(format!("{n} paths are not up"))),
    }
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

fn open_probers(options: &MonitorArgs) -> Result<Vec<RunningProber>> {
    let ports = device::open_active_ports();
    let is_wanted = |port: &OpenedDevice| {
        options.devices.is_empty()
            || options.devices.iter().any(|id| {
                id.name == port.context.device_name()
                    && id.port.is_none_or(|number| number == port.port_num)
            })
    };
    let available: Vec<String> = ports.iter().map(OpenedDevice::name).collect();
    for id in &options.devices {
        let name = id.port.map_or_else(
            || format!("{}/", id.name),
            |port| format!("{}/{port}", id.name),
        );
        if !available.iter().any(|port| port.starts_with(&name)) {
            return Err(Error::usage(format!(
                "no active port of {id}; available: {}",
                available.join(", ")
            )));
        }
    }
    let settings = MonitorSettings {
        interval: options.interval,
        timeout: options.timeout,
        late_limit: (options.timeout * 4).max(MIN_LATE_LIMIT),
        lost_after: options.lost_after,
        flows: options.flows,
        max_rate: options.max_rate,
    };
    let mut probers = Vec::new();
    for port in ports.into_iter().filter(is_wanted) {
        let name = port.name();
        if port.link == LinkType::Iwarp {
            match preferred_ip(&port) {
                Some(ip) => probers.push(udp_prober(name, Some(ip), settings)?),
                None => log(format_args!(
                    "rperf: {name} has no IP address and is not used"
                )),
            }
            continue;
        }
        let kind = LocalPortKind::QueuePair(port.link);
        let transport = QpTransport::new(port, settings.flows)?;
        let source = LocalPort::new(name, transport.has_device_clock(), settings);
        probers.push(prober(source, kind, Box::new(transport)));
    }
    if probers.is_empty() {
        probers.push(udp_prober(HOST.to_owned(), None, settings)?);
    }
    Ok(probers)
}

fn udp_prober(
    name: String,
    ip: Option<IpAddr>,
    settings: MonitorSettings,
) -> Result<RunningProber> {
    let transport = UdpTransport::new(ip, settings.flows)?;
    let source = LocalPort::new(name, true, settings);
    Ok(prober(source, LocalPortKind::Udp, Box::new(transport)))
}

fn prober(
    source: LocalPort,
    kind: LocalPortKind,
    transport: Box<dyn ProbeTransport + Send>,
) -> RunningProber {
    let (sender, targets) = channel();
    RunningProber {
        handle: LocalPortHandle {
            source: Arc::new(source),
            kind,
            targets: Mutex::new(sender),
        },
        transport,
        targets,
    }
}

/// The output: the log, and JSON lines on standard output.
struct MonitorOutput {
    json: bool,
    /// The monitor ends, because standard output or a thread failed.
    failed: AtomicBool,
    /// The error of standard output, whose lock keeps lines apart.
    error: Mutex<Option<Error>>,
}

impl MonitorOutput {
    fn line(&self, line: &MonitorLine) {
        if !self.json {
            return;
        }
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = stdout().lock();
        let written = out
            .write_all(line.json().as_bytes())
            .and_then(|()| out.flush());
        if let Err(e) = written {
            error.get_or_insert_with(|| Error::system("cannot write to standard output", &e));
            self.failed.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the error of standard output.
    fn take_error(&self) -> Option<Error> {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        error.take()
    }

    fn change(&self, source: &LocalPort, change: PathChange, labels: &[u32]) {
        if (change.from, change.to) != (PathState::Unknown, PathState::Up) {
            let text = lines::change_text(source, &change, labels);
            log(format_args!("rperf: {}", printable(&text)));
        }
        self.line(&lines::change(source, &change, labels));
    }

    fn host(&self, name: &str, error: Option<&Error>) {
        match error {
            Some(error) => log(format_args!(
                "rperf: {name}: {}",
                printable(&error.to_string())
            )),
            None => log(format_args!("rperf: {name}: the server answers")),
        }
        self.line(&MonitorLine::new(MonitorContent::Target {
            target: name.to_owned(),
            reachable: error.is_none(),
            error: error.map(|error| printable(&error.to_string())),
        }));
    }

    fn paths(&self, sources: &[Arc<LocalPort>]) {
        for source in sources {
            for line in lines::paths(source) {
                self.line(&line);
            }
        }
    }
}
