//! Runs `rperf mesh`.

use std::io::{BufWriter, IsTerminal, Write, stderr, stdout};
use std::time::Duration;

use base::error::{Error, Kind, Result};
use base::files::replace;
use base::log;
use fleet::mesh::coordinator::{self, MeshProgress, has_failed};
use fleet::mesh::devices::{self, Devices};
use fleet::mesh::hosts::{self, Host};
use fleet::mesh::launch::Launch;
use fleet::mesh::matrix::Matrix;
use fleet::mesh::outlier::{CellState, Location, SlowLimits};
use fleet::mesh::record::{MeshRecord, MeshTest, RecordFile};
use fleet::mesh::servers::Servers;
use fleet::mesh::{html, text};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use session::protocol::token::Token;

use super::print;
use crate::rperf::args::TestRun;
use crate::rperf::args::mesh::MeshInvocation;

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
    let endpoints = devices::hosts(&hosts, global.port)?;
    let tests = tests(invocation)?;
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
                port: global.port,
                timeout: mesh.start_timeout,
            };
            let started = launch.start(&hosts, &token)?;
            (Some(token), Some(started))
        }
    };
    let devices = Devices::new(&mesh.devices);
    let endpoints = devices::expand(endpoints, &devices, token.as_ref());
    let limits = SlowLimits {
        latency: mesh.slow_latency,
        bandwidth: mesh.slow_bandwidth,
    };
    let mut record = MeshRecord::new(mesh.pattern, limits, endpoints, tests);
    let create = |path| RecordFile::create(path, &record);
    let mut file = mesh.record.as_deref().map(create).transpose()?;
    let wait = global.wait_server.unwrap_or(Duration::from_secs(5));
    let labels = record.tests.iter().map(|test| test.label.clone());
    let limits = invocation
        .tests
        .iter()
        .map(|t| t.options.limits.to_limits());
    let limits = labels.zip(limits).collect();
    let servers = Servers::new(record.endpoints.clone(), token, wait, limits);
    let mut live = Live::new(&record);
    coordinator::run(&mut record, file.as_mut(), &servers, &mut live)?;
    record.outliers = coordinator::find_outliers(&record, &servers, &mut live);
    live.bar.finish_and_clear();
    if let Some(file) = file {
        file.finish(&record)?;
    }
    if let Some(path) = &mesh.html {
        replace(path, &html::page(&record))?;
    }
    if global.json {
        let mut out = BufWriter::new(stdout().lock());
        record
            .write(&mut out)
            .and_then(|()| out.flush())
            .map_err(|e| Error::system("cannot write to standard output", &e))?;
    } else {
        print(&text::render(&record))?;
    }
    conclude(&record)
}

/// Returns the error of a mesh with failed tests, results that exceed a limit, or outliers. Of a
/// pair that was measured again, the latest result counts.
fn conclude(record: &MeshRecord) -> Result<()> {
    let (mut tests, mut failed, mut exceeded) = (0, 0, 0);
    let mut worst = None;
    for (id, _) in (0..).zip(&record.tests) {
        let matrix = Matrix::new(&record.cells, id);
        tests += matrix.cells().count();
        failed += matrix.cells().filter(|c| has_failed(c)).count();
        exceeded += matrix.exceeded().count();
        worst = worst.or_else(|| matrix.slowest(matrix.exceeded()));
    }
    if failed > 0 {
        return Err(Error::test(format!("{failed} of {tests} tests failed")));
    }
    let slow = record
        .outliers
        .iter()
        .filter(|o| o.state == CellState::Slow);
    let slow = number_of_slow(slow.map(|outlier| &outlier.location));
    let worst = worst.map(|cell| {
        let text = text::exceeded(record, cell);
        match exceeded {
            1 => text,
            n => format!("{n} of {tests} results exceed a limit, the first test's worst is {text}"),
        }
    });
    let parts: Vec<String> = worst.into_iter().chain(slow).collect();
    if parts.is_empty() {
        return Ok(());
    }
    Err(Error::new(Kind::Exceeded, parts.join("; ")))
}

/// Describes the number of slow hosts, ports and links; `None` if there are none.
fn number_of_slow<'a>(slow: impl Iterator<Item = &'a Location>) -> Option<String> {
    let mut counts = [("host", 0), ("port", 0), ("link", 0)];
    // All hosts are suspects only if each test failed.
    let slow = slow.filter(|location| !matches!(location, Location::All));
    for location in slow {
        counts[match location {
            Location::All | Location::Host { .. } => 0,
            Location::Port { .. } => 1,
            Location::Link { .. } => 2,
        }]
        .1 += 1;
    }
    let total: u32 = counts.iter().map(|(_, count)| count).sum();
    let present = counts.into_iter().filter(|(_, count)| *count > 0);
    let parts = present.map(|(name, count)| match count {
        1 => format!("1 {name}"),
        n => format!("{n} {name}s"),
    });
    let parts: Vec<String> = parts.collect();
    let verb = if total == 1 { "is" } else { "are" };
    (total > 0).then(|| format!("{} {verb} slow", parts.join(" and ")))
}

fn find_hosts(invocation: &MeshInvocation) -> Result<Vec<Host>> {
    let mesh = &invocation.mesh;
    if let Some(path) = &mesh.hosts_file {
        return hosts::read_file(path);
    }
    if !invocation.hosts.is_empty() {
        return invocation
            .hosts
            .iter()
            .map(|h| hosts::parse_host(h))
            .collect();
    }
    hosts::slurm_job().map_err(|e| e.context("--start slurm"))
}

/// Returns the tests, each with a unique label.
fn tests(invocation: &MeshInvocation) -> Result<Vec<MeshTest>> {
    let mut tests: Vec<MeshTest> = Vec::new();
    for TestRun { test, options, .. } in &invocation.tests {
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
    Ok(tests)
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

impl MeshProgress for Live {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_hosts_and_links_are_counted() {
        let host = Location::Host {
            host: "n1".into(),
            ports: vec!["n1".into()],
        };
        let link = Location::Link {
            from: "n1".into(),
            to: "n2".into(),
        };
        let text = |slow: &[&Location]| number_of_slow(slow.iter().copied());
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[&host]).as_deref(), Some("1 host is slow"));
        assert_eq!(text(&[&link, &link]).as_deref(), Some("2 links are slow"));
        let both = text(&[&link, &host, &link]);
        assert_eq!(both.as_deref(), Some("1 host and 2 links are slow"));
    }
}
