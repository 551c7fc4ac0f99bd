//! Puts the parts together: from the command line to the exit status.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use crate::args::options::Options;
use crate::args::{self, Invocation};
use crate::config::Spec;
use crate::control::client::{self, Target};
use crate::control::rules::Rules;
use crate::control::server::Server;
use crate::control::token::Token;
use crate::error::{Error, Result};
use crate::report::json::{self, Document};
use crate::report::record::{Outcome, Record};
use crate::report::table::Table;
use crate::report::text::Format;
use crate::report::{compare, csv};
use crate::test::Test;
use crate::transport::verbs::Verbs;

/// `rperf` with these arguments.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let outcome = match args::parse(args) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Server(options)) => serve(&options),
        Ok(Invocation::Compare { old, new, threshold }) => hold_against(&old, &new, threshold),
        Ok(Invocation::Client { host, tests, global }) => run(host.as_deref(), &tests, &global),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rperf: {error}");
            ExitCode::from(error.exit_status())
        }
    }
}

fn serve(options: &Options) -> Result<()> {
    let mut server = Server::bind(options.bind, options.listen_port, Rules::new(&options.server)?)?;
    if options.verbose || options.verbose_more {
        server = server.verbose();
    }
    server.stopper().at_signals()?;
    eprintln!("rperf: serving on {}", server.local_addr()?);
    server.run(&Verbs)
}

fn run(host: Option<&str>, tests: &[(Test, Options)], global: &Options) -> Result<()> {
    // All specifications are checked before the first test runs.
    let mut specs = tests.iter().map(|(test, o)| Spec::new(*test, o)).collect::<Result<Vec<_>>>()?;
    let wait = global.wait_server.unwrap_or(Duration::from_secs(5));
    if let Some(host) = host {
        let token = global.server.token_file.as_deref().map(Token::read).transpose()?;
        let target =
            Target { host: host.to_owned(), port: global.listen_port, wait, token, qperf: global.server.qperf };
        return run_tests(Some(host), &target, &specs, global);
    }
    // Both ends here: the other one is a thread, on a port that nobody else knows.
    for spec in &mut specs {
        spec.server.id = spec.server.id.take().or_else(|| spec.client.id.clone());
    }
    let mut server = Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, Rules::default())?.quiet();
    let address = server.local_addr()?;
    let stopper = server.stopper();
    std::thread::scope(|scope| {
        scope.spawn(move || server.run(&Verbs));
        let (host, port) = (address.ip().to_string(), address.port());
        let target = Target { host, port, wait, token: None, qperf: false };
        let outcome = run_tests(None, &target, &specs, global);
        stopper.stop();
        outcome
    })
}

fn run_tests(host: Option<&str>, target: &Target, specs: &[Spec], global: &Options) -> Result<()> {
    let format = Format::new(global);
    let mut records = Vec::new();
    let mut failed = None;
    let mut table = global.tuning.is_sweep().then(|| Table::new(format.style));
    if global.csv {
        print(csv::HEADER)?;
    }
    for spec in specs {
        let (outcome, error) = match client::run(target, spec, &Verbs) {
            Ok(outcome) => (outcome, None),
            Err(error) => (Outcome::Failed { error: error.to_string() }, Some(error)),
        };
        let record = Record { test: spec.test, host: host.map(str::to_owned), outcome };
        match () {
            () if global.json => {}
            () if global.json_lines => print(&json::line(&record))?,
            () if global.csv => print(&csv::render(&record))?,
            () if table.is_some() && error.is_none() => {
                print(&table.as_mut().map_or_else(String::new, |t| t.render(&record)))?;
            }
            () => print(&format.render(&record))?,
        }
        records.push(record);
        // The first test that fails ends the run: what follows would most likely fail for the same reason.
        if let Some(error) = error {
            failed = Some(error.context(spec.test.name()));
            break;
        }
    }
    if global.json {
        print(&Document::new(records).render())?;
    }
    failed.map_or(Ok(()), Err)
}

/// Ends with status 1 where the new run is worse.
fn hold_against(old: &str, new: &str, threshold: f64) -> Result<()> {
    let read = |path: &str| -> Result<Document> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::system(format!("cannot read {path}"), &e))?;
        Document::read(&text).map_err(|e| e.context(path))
    };
    let rows = compare::compare(&read(old)?, &read(new)?, threshold);
    if rows.is_empty() {
        return Err(Error::usage(format!("{old} and {new} have no test in common with the same parameters")));
    }
    print(&compare::render(&rows))?;
    match rows.iter().filter(|row| row.verdict == compare::Verdict::Worse).count() {
        0 => Ok(()),
        n => Err(Error::test(format!("{n} of {} figures are worse by more than {} %", rows.len(), threshold * 100.0))),
    }
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| Error::system("cannot write the output", &e))
}
