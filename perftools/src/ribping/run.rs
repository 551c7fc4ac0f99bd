//! Runs `ribping` from its command line to its exit status.

use std::process::ExitCode;

use clap::Parser;

use super::args::PingArgs;
use super::report::{PingInfo, Report};
use super::session::PingConfig;
use super::stop::StopFlag;
use super::target::Target;
use super::{server, session, transport_choice};
use crate::common::error::Result;
use crate::common::log::log;

/// Runs `ribping` with these arguments; the first is the program's name.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args = match PingArgs::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let result = match args.target {
        Some(_) => ping(&args),
        None => serve(&args).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|error| {
        log(format_args!("ribping: {error}"));
        ExitCode::from(2)
    })
}

fn serve(args: &PingArgs) -> Result<()> {
    let stop = StopFlag::on_signals()?;
    server::run(args, &stop)
}

fn ping(args: &PingArgs) -> Result<ExitCode> {
    let stop = StopFlag::on_signals()?;
    let (report, result) = run(args, &stop)?;
    report.finish(args.json)?;
    result?;
    Ok(ExitCode::from(u8::from(
        !PingConfig::new(args)?.is_success(report.counts()),
    )))
}

/// Pings the target of a command line. Returns the report, and the error that ended the run early
/// if there was one.
///
/// # Errors
/// - [`Kind::Usage`](crate::common::error::Kind::Usage) if the command line is invalid.
/// - Other kinds if no transport reaches the target.
pub fn run(args: &PingArgs, stop: &StopFlag) -> Result<(Report, Result<()>)> {
    let config = PingConfig::new(args)?;
    let target = Target::parse(
        args.target.as_deref().unwrap_or_default(),
        args.lid,
        args.guid,
    )?;
    let mut transport = transport_choice::choose(&target, args)?;
    let info = PingInfo {
        target: transport.target(),
        transport: transport.name(),
        device: transport.device(),
        port: transport.port(),
    };
    log(format_args!(
        "ribping: pinging {} with {} on {} port {}",
        info.target, info.transport, info.device, info.port
    ));
    let mut report = Report::new(
        info,
        args.flood || args.json,
        args.errors || args.verbosity() > 0,
    );
    let result = session::run(transport.as_mut(), &config, stop, &mut report);
    Ok((report, result))
}
