//! Runs `rperf`, from the command line to the exit status. It connects all other directories. Only
//! the binary uses it.

mod auto;
mod live;
mod records;

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use crate::common::error::{Error, Result};
use crate::common::log;
use crate::rperf::args::command_line::Options;
use crate::rperf::args::{self, Invocation};
use crate::rperf::control::client::{self, ServerAddr};
use crate::rperf::control::rules::Rules;
use crate::rperf::control::server::Server;
use crate::rperf::control::token::Token;
use crate::rperf::report::csv;
use crate::rperf::report::json::{self, Document};
use crate::rperf::report::record::{Outcome, Record};
use crate::rperf::report::table::Table;
use crate::rperf::report::text::Format;
use crate::rperf::spec::Spec;
use crate::rperf::spec::test::Test;
use crate::rperf::stats::monitor::MonitorOptions;
use crate::rperf::transport::verbs::VerbsBackend;
use live::LiveOutput;

/// Runs `rperf` with the given arguments. The first one is the name of the program.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let outcome = match args::parse(args.into_iter().skip(1)) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Server(options)) => serve(&options),
        Ok(Invocation::Compare {
            old,
            new,
            threshold,
        }) => records::compare(&old, &new, threshold),
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
        }) => run_client(host.as_deref(), &tests, &global),
        Err(error) => Err(error),
    };
    let status = match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::log(format_args!("rperf: {error}"));
            ExitCode::from(error.exit_status())
        }
    };
    log::flush();
    status
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
    server.stopper().stop_on_signals()?;
    log::start_writer("rperf")?;
    log::log(format_args!("rperf: serving on {}", server.local_addr()?));
    server.run(&VerbsBackend)
}

fn run_client(host: Option<&str>, tests: &[(Test, Options)], global: &Options) -> Result<()> {
    // Check all specifications before the first test runs.
    let (mut specs, mut failed) = (Vec::new(), None);
    for (test, options) in tests {
        match options.to_spec(*test) {
            Ok(spec) => specs.push(spec),
            Err(error) if global.keep_going => keep_last_error(&mut failed, error),
            Err(error) => return Err(error),
        }
    }
    with_server(host, &mut specs, global, |server_addr, specs| {
        run_tests(host, server_addr, specs, global, failed)
    })
}

fn search(host: Option<&str>, words: &[String], options: &Options) -> Result<()> {
    let mut spec = [options.to_spec(Test::RcBw)?];
    with_server(host, &mut spec, options, |server_addr, spec| {
        auto::run(host, server_addr, &spec[0], options, words)
    })
}

/// Calls `action` with the address of the server on `host`. Without a host, runs a server in this
/// process for the duration of the call.
fn with_server(
    host: Option<&str>,
    specs: &mut [Spec],
    global: &Options,
    action: impl FnOnce(&ServerAddr, &[Spec]) -> Result<()>,
) -> Result<()> {
    let wait = global.wait_server.unwrap_or(Duration::from_secs(5));
    if let Some(host) = host {
        let token = global
            .server
            .token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        let server_addr = ServerAddr {
            host: host.to_owned(),
            port: global.listen_port,
            wait,
            token,
            qperf: global.server.qperf,
        };
        return action(&server_addr, specs);
    }
    // The server uses the same device as the client unless it has its own.
    for spec in &mut *specs {
        spec.server.id = spec.server.id.take().or_else(|| spec.client.id.clone());
    }
    // Port 0: the system chooses a free port.
    let mut server =
        Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, Rules::default())?.quiet();
    let address = server.local_addr()?;
    let stopper = server.stopper();
    std::thread::scope(|scope| {
        scope.spawn(move || server.run(&VerbsBackend));
        let (host, port) = (address.ip().to_string(), address.port());
        let server_addr = ServerAddr {
            host,
            port,
            wait,
            token: None,
            qperf: false,
        };
        let outcome = action(&server_addr, specs);
        stopper.stop();
        outcome
    })
}

/// Keeps the last error, which determines the exit status, and prints the previous one.
fn keep_last_error(failed: &mut Option<Error>, error: Error) {
    if let Some(earlier) = failed.replace(error) {
        log::log(format_args!("rperf: {earlier}"));
    }
}

fn run_tests(
    host: Option<&str>,
    server_addr: &ServerAddr,
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
    let live = LiveOutput::new(global, host, format.style, specs.len());
    for spec in specs {
        let monitor_options = MonitorOptions {
            interval: global.interval,
            observer: live.begin(spec),
        };
        let outcome = client::run(server_addr, spec, &VerbsBackend, monitor_options);
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
        // With `--json`, one document with all records is printed at the end.
        if !global.json {
            let text = if global.json_lines {
                json::record_line(&record)
            } else if global.csv {
                csv::render(&record)
            } else if let (Some(table), None) = (&mut table, &error) {
                table.render(&record)
            } else if live.is_name_printed() {
                format.figures(&record)
            } else {
                format.render(&record)
            };
            print(&text)?;
        }
        records.push(record);
        if let Some(error) = error.map(|error| error.context(spec.test.name())) {
            keep_last_error(&mut failed, error);
            // The following tests would most likely fail for the same reason.
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
        .map_err(|e| Error::system("cannot write to standard output", &e))
}
