//! Runs `ribping` from its command line to its exit status.

use std::process::{ExitCode, Stdio};

use ::session::restart;
use ::session::server::Ended;
use base::error::{Kind, Result};
use base::log::{self, log};
use base::memory::share_heap_if_limited;
use clap::Parser;

use super::args::{PingArgs, other_tool};
use super::report::{PingInfo, PingReport};
use super::session::PingConfig;
use super::stop::StopFlag;
use super::target::Target;
use super::transport::Link;
use super::{server, session, transport_choice};
use crate::usage;

/// Runs `ribping` with these arguments; the first is the program's name.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    share_heap_if_limited();
    let args = match PingArgs::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => return usage::exit("ribping", &error, other_tool),
    };
    let result = match args.target {
        Some(_) => ping(&args),
        None => serve(&args).map(|()| ExitCode::SUCCESS),
    };
    let status = result.unwrap_or_else(|error| {
        log(format_args!("ribping: {error}"));
        ExitCode::from(2)
    });
    log::flush();
    status
}

fn serve(args: &PingArgs) -> Result<()> {
    let stop = StopFlag::on_signals()?;
    log::start_writer("ribping")?;
    match server::run(args, &stop)? {
        Ended::Stopped => Ok(()),
        Ended::DeviceRemoved => {
            log(format_args!(
                "ribping: restarting to close a removed device"
            ));
            Err(restart::restart(Stdio::inherit()))
        }
    }
}

fn ping(args: &PingArgs) -> Result<ExitCode> {
    let stop = StopFlag::on_signals()?;
    let report = match run(args, &stop) {
        Ok(report) => report,
        Err(error) if args.json => {
            let info = PingInfo {
                target: args.target.clone().unwrap_or_default(),
                ..PingInfo::default()
            };
            let mut report = PingReport::new(info, true, false);
            report.set_error(&error);
            report.finish(true)?;
            return Err(error);
        }
        Err(error) => return Err(error),
    };
    report.finish(args.json)?;
    Ok(ExitCode::from(u8::from(
        !PingConfig::new(args)?.is_success(report.counts()),
    )))
}

/// Pings the target of a command line, and returns the report.
///
/// # Errors
/// - [`Kind::Usage`](base::error::Kind::Usage) if the command line is invalid.
/// - Other kinds if this host has no port for the target, or does not know it. A peer that does not
///   answer is not an error.
pub fn run(args: &PingArgs, stop: &StopFlag) -> Result<PingReport> {
    let config = PingConfig::new(args)?;
    let target = Target::parse(
        args.target.as_deref().unwrap_or_default(),
        args.lid,
        args.guid,
    )?;
    let mut first = match transport_choice::choose(&target, args) {
        Ok(transport) => Some(Ok(transport)),
        // The server may not run yet.
        Err(error) if error.kind() == Kind::Gone => Some(Err(error)),
        Err(error) => return Err(error),
    };
    let info = match &first {
        Some(Ok(transport)) => PingInfo {
            target: transport.target(),
            transport: transport.name(),
            device: transport.device(),
            port: transport.port(),
        },
        _ => PingInfo {
            target: format!("Host {}", args.target.as_deref().unwrap_or_default()),
            transport: "rdma_cm",
            ..PingInfo::default()
        },
    };
    let mut report = PingReport::new(
        info,
        args.flood || args.json,
        args.errors || args.verbosity() > 0,
    )
    .with_flood(args.flood);
    let mut link = Link::new(Box::new(|| {
        first
            .take()
            .unwrap_or_else(|| transport_choice::choose(&target, args))
    }));
    session::run(&mut link, &config, stop, &mut report);
    Ok(report)
}
