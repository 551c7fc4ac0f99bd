//! Runs the threads of a monitor: a prober for each device, the registration and the metrics.

use std::collections::HashSet;
use std::io::{Write, stdout};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::device_id::DeviceId;
use base::error::{Error, Result};
use base::interrupt::Interrupt;
use base::log::{self, log};
use base::peer_text::printable;
use base::threads::{spawn_scoped, spawn_scoped_with_stack};
use ipnet::IpNet;
use measure::transport::LinkType;
use measure::transport::device::{self, OpenedDevice};
use session::probe::reflector::{HOST, preferred_ip};

use crate::exposition;
use crate::http::{ListenAddr, MetricsServer};
use crate::monitor::lines::{self, MonitorContent, MonitorLine};
use crate::monitor::metrics::MonitorMetrics;
use crate::monitor::prober::{self, AssignReflector, LocalPort, ProbeTransport};
use crate::monitor::qp_transport::QpTransport;
use crate::monitor::registration::{Hosts, LocalPortHandle, LocalPortKind, is_suspect};
use crate::monitor::tracker::{MonitorSettings, PathChange, PathState};
use crate::monitor::udp_transport::UdpTransport;

/// Number of threads that request reflectors.
const WORKERS: usize = 16;
/// Stack of a thread that requests reflectors.
const STACK: usize = 256 << 10;
/// Interval at which the main thread checks whether to stop.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A device of this host with its transport.
struct RunningProber {
    handle: LocalPortHandle,
    transport: Box<dyn ProbeTransport + Send>,
    targets: Receiver<AssignReflector>,
}

/// Settings of a monitor besides its hosts.
#[derive(Clone, Debug)]
pub struct MonitorConfig {
    /// Devices of this host that send probes; empty: all.
    pub devices: Vec<DeviceId>,
    /// Settings of the probers.
    pub settings: MonitorSettings,
    /// Address of the metrics, and the networks that may read them.
    pub metrics: Option<(ListenAddr, Vec<IpNet>)>,
    /// Print lines of JSON.
    pub json: bool,
    /// Interval of the results as JSON lines.
    pub report_interval: Duration,
    /// Length of the run; none: until a signal arrives.
    pub time: Option<Duration>,
}

/// Probes all paths until a signal arrives or the time is over.
///
/// # Errors
/// Returns an error if a device cannot be used, or if a path is lost when the time is over.
pub fn run(hosts: Hosts, config: MonitorConfig) -> Result<()> {
    let interrupt = Interrupt::on_signals()?;
    let probers = open_probers(&config.devices, config.settings)?;
    let bind = |(listen, allow)| MetricsServer::bind("rperf", listen, allow);
    let server = config.metrics.map(bind).transpose()?;
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
        hosts: Arc::new(hosts),
        sources,
        output: MonitorOutput {
            json: config.json,
            failed: AtomicBool::new(false),
            error: Mutex::new(None),
        },
        interrupt,
        deadline: config.time.map(|time| Instant::now() + time),
        report_interval: config.json.then_some(config.report_interval),
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
        output.print(&lines::summary(sources));
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

fn open_probers(devices: &[DeviceId], settings: MonitorSettings) -> Result<Vec<RunningProber>> {
    let ports = device::open_active_ports();
    let is_wanted = |port: &OpenedDevice| {
        devices.is_empty()
            || devices.iter().any(|id| {
                id.name == port.context.device_name()
                    && id.port.is_none_or(|number| number == port.port_num)
            })
    };
    let available: Vec<String> = ports.iter().map(OpenedDevice::name).collect();
    for id in devices {
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
        if self.json {
            self.print(&line.json());
        }
    }

    fn print(&self, text: &str) {
        let mut error = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = stdout().lock();
        let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
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
