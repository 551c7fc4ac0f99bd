//! Runs `rperf mesh`.

use std::io::{BufWriter, IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::print;
use crate::common::error::{Error, Kind, Result};
use crate::common::log;
use crate::common::protocol::token::Token;
use crate::rperf::args::mesh::{MeshInvocation, MeshOptions, StartMethod};
use crate::rperf::mesh::coordinator::{self, Progress};
use crate::rperf::mesh::hosts::{self, Host};
use crate::rperf::mesh::launch::{Launch, pods};
use crate::rperf::mesh::outlier::{SlowLimits, State};
use crate::rperf::mesh::record::{MeshRecord, MeshTest, RecordFile};
use crate::rperf::mesh::servers::Servers;
use crate::rperf::mesh::{csv, html, text};

/// Number of endpoints up to which the matrix is shown while it grows.
const MAX_LIVE: usize = 24;

/// Measures a mesh and prints its results.
///
/// # Errors
/// Returns an error if the servers cannot be started, if a file cannot be written, if tests failed,
/// or if there are outliers.
pub(super) fn run(invocation: &MeshInvocation) -> Result<()> {
    let MeshInvocation { global, mesh, .. } = invocation;
    let hosts = find_hosts(invocation)?;
    let mut record = new_record(invocation, &hosts)?;
    let mut file = None;
    if let Some(path) = &mesh.record {
        if mesh.resume && path.exists() {
            record = resumed(&record, path)?;
        } else if path.exists() {
            return Err(
                Error::usage(format!("the record {} exists", path.display()))
                    .with_help("add --resume to continue its run, or name another file"),
            );
        }
        file = Some(RecordFile::create(path, &record)?);
    }
    log::start_writer("rperf")?;
    let (token, _started) = match mesh.start {
        None => {
            let path = global.server.token_file.as_deref();
            (path.map(Token::read).transpose()?, None)
        }
        Some(method) => {
            let token = Token::random()?;
            let launch = Launch {
                method,
                launcher: mesh.launcher.as_deref(),
                rperf: &mesh.remote_rperf,
                port: global.listen_port,
                timeout: mesh.start_timeout,
            };
            let started = launch.start(&hosts, &token)?;
            (Some(token), Some(started))
        }
    };
    let wait = global.wait_server.unwrap_or(Duration::from_secs(5));
    let servers = Servers::new(record.endpoints.clone(), token, wait);
    let mut live = Live::new(&record);
    coordinator::run(&mut record, file.as_mut(), &servers, &mut live)?;
    record.outliers = coordinator::find_outliers(&record, &servers, &mut live);
    live.bar.finish_and_clear();
    if let Some(file) = file {
        file.finish(&record)?;
    }
    if let Some(path) = &mesh.html {
        std::fs::write(path, html::page(&record))
            .map_err(|e| Error::system(format!("cannot write {}", path.display()), &e))?;
    }
    if global.json {
        let mut out = BufWriter::new(stdout().lock());
        record
            .write(&mut out)
            .and_then(|()| out.flush())
            .map_err(|e| Error::system("cannot write to standard output", &e))?;
    } else if global.csv {
        print(&csv::render(&record))?;
    } else {
        print(&text::render(&record))?;
    }
    conclude(&record)
}

/// Returns the error of a mesh with failed tests or outliers.
fn conclude(record: &MeshRecord) -> Result<()> {
    let cells = &record.cells.list;
    let failed = cells.iter().filter(|c| coordinator::has_failed(c)).count();
    if failed > 0 {
        return Err(Error::test(format!(
            "{failed} of {} tests failed",
            cells.len()
        )));
    }
    let slow = record.outliers.iter().filter(|o| o.state == State::Slow);
    match slow.count() {
        0 => Ok(()),
        n => Err(Error::new(
            Kind::Exceeded,
            format!("{n} hosts, ports or links are slow"),
        )),
    }
}

fn find_hosts(invocation: &MeshInvocation) -> Result<Vec<Host>> {
    let mesh = &invocation.mesh;
    if let Some(path) = &mesh.hosts_file {
        return hosts::read_file(path);
    }
    if let Some(path) = &mesh.inventory {
        return hosts::read_inventory(path, mesh.group.as_deref().unwrap_or("all"));
    }
    if let Some(selector) = &mesh.selector {
        return pods(mesh_launcher(mesh), selector);
    }
    if let Some(list) = &mesh.nodelist {
        return hosts::expand_nodelist(list);
    }
    if !invocation.hosts.is_empty() {
        return invocation
            .hosts
            .iter()
            .map(|h| hosts::parse_host(h))
            .collect();
    }
    let list = std::env::var("SLURM_JOB_NODELIST").map_err(|_| {
        Error::usage("rperf mesh --start slurm: SLURM_JOB_NODELIST is not set")
            .with_help("run it in a Slurm job, as in `salloc --nodes=4 rperf mesh --start slurm rc_bw`, or name the hosts")
    })?;
    hosts::expand_nodelist(&list)
}

/// Returns the command of kubectl.
fn mesh_launcher(mesh: &MeshOptions) -> &str {
    match (mesh.start, &mesh.launcher) {
        (Some(StartMethod::Kubectl), Some(launcher)) => launcher,
        _ => "kubectl",
    }
}

fn new_record(invocation: &MeshInvocation, hosts: &[Host]) -> Result<MeshRecord> {
    let mesh = &invocation.mesh;
    let port = invocation.global.listen_port;
    let mut tests: Vec<MeshTest> = Vec::new();
    for (test, options) in &invocation.tests {
        let same = tests.iter().filter(|t| t.spec.test == *test).count();
        let label = match same {
            0 => test.name().to_owned(),
            n => format!("{}#{}", test.name(), n + 1),
        };
        tests.push(MeshTest {
            label,
            spec: options.to_spec(*test)?,
        });
    }
    let limits = SlowLimits {
        latency: mesh.slow_latency,
        bandwidth: mesh.slow_bandwidth,
    };
    let endpoints = hosts::endpoints(hosts, port, &mesh.devices)?;
    Ok(MeshRecord::new(mesh.pattern, limits, endpoints, tests))
}

/// Reads the record of an earlier part of the run.
fn resumed(new: &MeshRecord, path: &std::path::Path) -> Result<MeshRecord> {
    let text = std::fs::read_to_string(path)
        .map_err(|e| Error::system(format!("cannot read {}", path.display()), &e))?;
    let mut old = MeshRecord::parse(&text).map_err(|e| e.context(path.display()))?;
    let is_same =
        old.pattern == new.pattern && old.endpoints == new.endpoints && old.tests == new.tests;
    if !is_same {
        return Err(Error::usage(format!(
            "cannot resume from {}: it has other hosts, tests or another pattern",
            path.display()
        ))
        .with_help("repeat the command line of its run, or name another file"));
    }
    old.limits = new.limits;
    Ok(old)
}

/// Shows the progress on a terminal.
struct Live {
    bar: ProgressBar,
}

impl Live {
    fn new(record: &MeshRecord) -> Self {
        let target = if stderr().is_terminal() {
            ProgressDrawTarget::stderr_with_hz(4)
        } else {
            ProgressDrawTarget::hidden()
        };
        let style =
            ProgressStyle::with_template("{msg}\n{prefix} [{bar:30}] {pos}/{len} {elapsed}");
        let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
        let n = record.endpoints.len() as u64;
        let tests = n * n.saturating_sub(1) * record.tests.len() as u64;
        let bar = ProgressBar::with_draw_target(Some(tests), target)
            .with_style(style.progress_chars("=> "));
        Self { bar }
    }
}

impl Progress for Live {
    fn round(&mut self, number: u32, total: u32, record: &MeshRecord) {
        self.bar
            .set_prefix(format!("round {} of {total}", number + 1));
        self.bar.set_position(record.cells.list.len() as u64);
    }

    fn cell(&mut self, record: &MeshRecord) {
        self.bar.set_position(record.cells.list.len() as u64);
        let last = record.cells.list.last();
        if let (Some(cell), false) = (last, self.bar.is_hidden()) {
            if record.endpoints.len() <= MAX_LIVE {
                self.bar.set_message(text::matrix(record, cell.test));
            }
        }
    }

    fn repeating(&mut self, suspects: usize) {
        self.bar
            .set_prefix(format!("measuring {suspects} suspects again"));
    }
}
