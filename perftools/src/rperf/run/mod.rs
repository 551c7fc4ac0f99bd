//! Runs `rperf`, from the command line to the exit status. It connects all other directories. Only
//! the binary uses it.

mod client;
pub mod diagnosis;
mod failures;
mod live;
mod mesh;
mod monitor;
mod output;
mod plan;
mod records;
mod tune;

use std::io::{BufRead, Read, Write, stdin};
use std::net::{IpAddr, Ipv4Addr};
use std::process::ExitCode;
use std::time::Duration;

use base::error::{Error, Result};
use base::interrupt::Interrupt;
use base::log;
use base::memory::share_heap_if_limited;
use base::shell;
use base::system::raise_open_files_limit;
use base::threads::spawn_scoped;
use measure::spec::Spec;
use measure::spec::test::Test;
use measure::transport::verbs::VerbsBackend;
use session::connect::ServerAddr;
use session::protocol::token::Token;
use session::restart;
use session::rperf::rules::Rules;
use session::rperf::server::Server;
use session::server::Ended;
use session::server::listener::Listener;

use diagnosis::RecordDiagnosis;

use crate::rperf::args::command_line::Options;
use crate::rperf::args::{self, Invocation};

/// Maximum length of the token on standard input, in bytes.
const MAX_TOKEN_LINE: u64 = 4096;

/// Unused memory that each heap of a server keeps, in bytes: what glibc begins with.
const HEAP_TRIM_THRESHOLD: u32 = 128 * 1024;

/// Runs `rperf` with the given arguments. The first one is the name of the program.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    share_heap_if_limited();
    let args: Vec<String> = args.into_iter().collect();
    let command_line = shell::join(&args);
    let outcome = match args::parse(args.into_iter().skip(1)) {
        Ok(Invocation::Print(text)) => print(&text),
        Ok(Invocation::Server(options)) => serve(&options),
        Ok(Invocation::Compare {
            old,
            new,
            threshold,
        }) => records::compare(&old, &new, threshold),
        Ok(Invocation::Mesh(invocation)) => mesh::run(&invocation),
        Ok(Invocation::Monitor(options)) => monitor::run(&options),
        Ok(Invocation::Report { files, output }) => records::report(&files, output.as_deref()),
        Ok(Invocation::Tune {
            host,
            words,
            options,
        }) => search(host.as_deref(), &words, &options, &command_line),
        Ok(Invocation::Client {
            host,
            tests,
            global,
        }) => client::run(host.as_deref(), tests, &global, &command_line),
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
    // The heaps of the threads return the memory of a test when it ends.
    ibverbs::set_heap_trim_threshold(HEAP_TRIM_THRESHOLD);
    let mut rules = Rules::new(&options.server.rules())?;
    if options.server.supervised {
        let mut line = String::new();
        stdin()
            .lock()
            .take(MAX_TOKEN_LINE)
            .read_line(&mut line)
            .map_err(|e| Error::system("cannot read the token from standard input", &e))?;
        rules.token = Some(Token::from_line(&line)?);
    }
    if rules.mesh && rules.token.is_none() && rules.allow.is_empty() {
        return Err(Error::usage(
            "--mesh lets clients run tests from this host, and the server serves all clients",
        )
        .with_help("add --token-file, or --allow with the networks of the mesh"));
    }
    let inherited =
        Listener::from_stdin().map_err(|e| Error::system("cannot use standard input", &e))?;
    let mut server = match inherited {
        Some(listener) => Server::new(listener, rules),
        None => Server::bind(options.bind, options.port, rules)?,
    };
    // The token of a supervised server cannot be read again.
    server = server.yield_devices(!options.server.supervised);
    if !options.verbose.is_empty() {
        server = server.verbose();
    }
    server.stopper().stop_on_signals()?;
    if options.server.supervised {
        let stopper = server.stopper();
        let wait = move || {
            // Standard input ends when the coordinator does.
            let _ = std::io::copy(&mut stdin().lock(), &mut std::io::sink());
            stopper.stop();
        };
        let thread = std::thread::Builder::new().spawn(wait);
        thread.map_err(|e| Error::system("cannot create a thread", &e))?;
    }
    raise_open_files_limit();
    log::start_writer("rperf")?;
    log::log(format_args!("rperf: serving on {}", server.local_addr()?));
    match server.run(&VerbsBackend, &RecordDiagnosis)? {
        Ended::Stopped => Ok(()),
        Ended::DeviceRemoved => {
            log::log(format_args!("rperf: restarting to close a removed device"));
            let stdin = server.listener().to_stdin();
            let stdin = stdin.map_err(|e| Error::system("cannot restart the server", &e))?;
            Err(restart::restart(stdin))
        }
    }
}

fn search(
    host: Option<&str>,
    words: &[String],
    options: &Options,
    command_line: &str,
) -> Result<()> {
    let mut spec = options.to_spec(Test::RcBw)?;
    share_device(host, &mut spec);
    with_server(host, options, |server_addr| {
        tune::run(host, server_addr, &spec, options, words, command_line)
    })
}

/// Selects the client's device for the server if both ends are on this host and the server has no
/// device of its own.
fn share_device(host: Option<&str>, spec: &mut Spec) {
    if host.is_none() && spec.server.id.is_none() {
        spec.server.id.clone_from(&spec.client.id);
    }
}

/// Calls `action` with the address of the server on `host`. Without a host, runs a server in this
/// process for the duration of the call.
fn with_server(
    host: Option<&str>,
    global: &Options,
    action: impl FnOnce(&ServerAddr) -> Result<()>,
) -> Result<()> {
    let interrupt = Interrupt::on_signals()?;
    let wait = global.wait_server.unwrap_or(Duration::from_secs(5));
    if let Some(host) = host {
        let token = global
            .server
            .token_file
            .as_deref()
            .map(Token::read)
            .transpose()?;
        if token.is_some() && global.server.qperf {
            return Err(
                Error::usage("--token-file with --qperf: qperf supports no token")
                    .with_help("remove one of them"),
            );
        }
        let server_addr = ServerAddr {
            host: host.to_owned(),
            port: global.port,
            wait,
            bind: global.bind,
            token,
            qperf: global.server.qperf,
            interrupt,
        };
        return action(&server_addr);
    }
    // Port 0: the system chooses a free port.
    let mut server =
        Server::bind(Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), 0, Rules::default())?.quiet();
    let address = server.local_addr()?;
    let stopper = server.stopper();
    std::thread::scope(|scope| {
        spawn_scoped(scope, "server", move || {
            server.run(&VerbsBackend, &RecordDiagnosis)
        })?;
        let (host, port) = (address.ip().to_string(), address.port());
        let server_addr = ServerAddr {
            host,
            port,
            wait,
            bind: None,
            token: None,
            qperf: false,
            interrupt,
        };
        let outcome = action(&server_addr);
        stopper.stop();
        outcome
    })
}

fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::system("cannot write to standard output", &e))
}
