//! Puts the parts together: from the command line to the exit status.

mod auto;
mod live;
mod records;

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
use crate::error::{self, Error, Result};
use crate::report::csv;
use crate::report::json::{self, Document};
use crate::report::record::{Outcome, Record};
use crate::report::table::Table;
use crate::report::text::Format;
use crate::stats::watch::Watch;
use crate::test::Test;
use crate::transport::verbs::Verbs;
use live::Live;

/// `rperf` with these arguments.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let outcome = match args::parse(args) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Server(options)) => serve(&options),
        Ok(Invocation::Compare {
            old,
            new,
            threshold,
        }) => records::hold_against(&old, &new, threshold),
        Ok(Invocation::Report { files, output }) => records::report(&files, output.as_deref()),
        Ok(Invocation::Auto {
            host,
            words,
            options,
        }) => search(host.as_deref(), &words, &options),
        Ok(Invocation::Client {
            host,
            tests,
            global,
        }) => run(host.as_deref(), &tests, &global),
        Err(error) => Err(error),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error::tell(format_args!("rperf: {error}"));
            ExitCode::from(error.exit_status())
        }
    }
}

fn serve(options: &Options) -> Result<()> {
    let mut server = Server::bind(
        options.bind,
        options.listen_port,
        Rules::new(&options.server)?,
    )?;
    if options.verbose || options.verbose_more {
        server = server.verbose();
    }
    server.stopper().at_signals()?;
    error::tell(format_args!("rperf: serving on {}", server.local_addr()?));
    server.run(&Verbs)
}

fn run(host: Option<&str>, tests: &[(Test, Options)], global: &Options) -> Result<()> {
    // All specifications are checked before the first test runs.
    let (mut specs, mut failed) = (Vec::new(), None);
    for (test, options) in tests {
        match Spec::new(*test, options) {
            Ok(spec) => specs.push(spec),
            Err(error) if global.keep_going => tell(&mut failed, error),
            Err(error) => return Err(error),
        }
    }
    with_server(host, &mut specs, global, |target, specs| {
        run_tests(host, target, specs, global, failed)
    })
}

fn search(host: Option<&str>, words: &[String], options: &Options) -> Result<()> {
    let mut spec = [Spec::new(Test::RcBw, options)?];
    with_server(host, &mut spec, options, |target, spec| {
        auto::run(host, target, &spec[0], options, words)
    })
}

/// Does something with a server: that on `host`, or one here.
fn with_server(
    host: Option<&str>,
    specs: &mut [Spec],
    global: &Options,
    act: impl FnOnce(&Target, &[Spec]) -> Result<()>,
) -> Result<()> {
    let wait = global.wait_server.unwrap_or(Duration::from_secs(5));
    if let Some(host) = host {
        let token = global
            .server
            .token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        let target = Target {
            host: host.to_owned(),
            port: global.listen_port,
            wait,
            token,
            qperf: global.server.qperf,
        };
        return act(&target, specs);
    }
    // Both ends here: the other one is a thread, on a port that nobody else knows.
    for spec in &mut *specs {
        spec.server.id = spec.server.id.take().or_else(|| spec.client.id.clone());
    }
    let mut server =
        Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, Rules::default())?.quiet();
    let address = server.local_addr()?;
    let stopper = server.stopper();
    std::thread::scope(|scope| {
        scope.spawn(move || server.run(&Verbs));
        let (host, port) = (address.ip().to_string(), address.port());
        let target = Target {
            host,
            port,
            wait,
            token: None,
            qperf: false,
        };
        let outcome = act(&target, specs);
        stopper.stop();
        outcome
    })
}

/// Keeps a failure for the exit status, and tells the one before it.
fn tell(failed: &mut Option<Error>, error: Error) {
    if let Some(earlier) = failed.replace(error) {
        error::tell(format_args!("rperf: {earlier}"));
    }
}

fn run_tests(
    host: Option<&str>,
    target: &Target,
    specs: &[Spec],
    global: &Options,
    mut failed: Option<Error>,
) -> Result<()> {
    let format = Format::new(global);
    let mut records = Vec::new();
    let mut table = global.tuning.is_sweep().then(|| Table::new(format));
    if global.csv {
        print(csv::HEADER)?;
    }
    let live = Live::new(global, host, format.style, specs.len());
    for spec in specs {
        let watch = Watch {
            interval: global.interval,
            audience: live.begin(spec),
        };
        let outcome = client::run(target, spec, &Verbs, watch);
        live.end()?;
        let (outcome, error) = match outcome {
            Ok(outcome) => (outcome, None),
            Err(error) => (
                Outcome::Failed {
                    error: error.to_string(),
                },
                Some(error),
            ),
        };
        let record = Record {
            test: spec.test,
            host: host.map(str::to_owned),
            outcome,
        };
        match () {
            () if global.json => {}
            () if global.json_lines => print(&json::line(&record))?,
            () if global.csv => print(&csv::render(&record))?,
            () if table.is_some() && error.is_none() => {
                print(
                    &table
                        .as_mut()
                        .map_or_else(String::new, |t| t.render(&record)),
                )?;
            }
            () if live.has_begun() => print(&format.figures(&record))?,
            () => print(&format.render(&record))?,
        }
        records.push(record);
        if let Some(error) = error.map(|error| error.context(spec.test.name())) {
            tell(&mut failed, error);
            // The first test that fails ends the run: what follows would most likely fail for the
            // same reason.
            if !global.keep_going {
                break;
            }
        }
    }
    if global.json {
        print(&Document::new(records).render())?;
    }
    failed.map_or(Ok(()), Err)
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::system("cannot write the output", &e))
}
