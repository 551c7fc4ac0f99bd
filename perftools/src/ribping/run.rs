//! `ribping`: from the command line to the exit status.

use std::process::ExitCode;

use clap::Parser;

use super::args::PingArgs;
use super::report::{PingInfo, Report};
use super::session::PingConfig;
use super::stop::StopFlag;
use super::target::Target;
use super::{server, session, transport_choice};
use crate::common::error::{Result, log};

/// `ribping` with these arguments, the program's name first.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    let args = match PingArgs::try_parse_from(args) {
        Ok(args) => args,
        Err(error) => {
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let outcome = match args.target {
        Some(_) => ping(&args),
        None => serve(&args).map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|error| {
        log(format_args!("ribping: {error}"));
        ExitCode::from(2)
    })
}

fn serve(args: &PingArgs) -> Result<()> {
    let stop = StopFlag::at_signals()?;
    server::run(args, &stop)
}

fn ping(args: &PingArgs) -> Result<ExitCode> {
    let stop = StopFlag::at_signals()?;
    let (report, ended) = run(args, &stop)?;
    report.finish(args.json)?;
    ended?;
    Ok(ExitCode::from(u8::from(
        !PingConfig::new(args)?.is_met(report.counts()),
    )))
}

/// Pings as the command line says: what came of it, and whether it ended as it should.
///
/// # Errors
/// Nothing can be sent: the command line makes no sense, or there is no way to the target.
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
        "ribping: to {} by {}, {} port {}",
        info.target, info.transport, info.device, info.port
    ));
    let mut report = Report::new(
        info,
        args.flood || args.json,
        args.errors || args.level() > 0,
    );
    let ended = session::run(transport.as_mut(), &config, stop, &mut report);
    Ok((report, ended))
}
