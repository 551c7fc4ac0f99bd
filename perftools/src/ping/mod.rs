//! `ribping`: is it reachable?
//!
//! [`args`](crate::args::ping) → [`target`] (what is pinged) → [`choice`] (which way) → a [`Way`]
//! ([`datagram`] or [`rping`]) → [`session`] (the loop) → [`ledger`] (what was sent, answered,
//! lost) → [`report`]. [`serve`] is the other side of both ways. The binary calls [`main`] and
//! nothing else.

pub mod choice;
pub mod datagram;
pub mod ledger;
pub mod name;
pub mod report;
pub mod rping;
pub mod serve;
pub mod session;
pub mod stop;
pub mod target;
pub mod way;

use std::process::ExitCode;

use clap::Parser;

use crate::args::ping::PingArgs;
use crate::error::{Result, tell};
use report::{Journey, Report};
use session::Plan;
use stop::Stop;
use target::Target;

pub use way::{Heard, Way};

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
        tell(format_args!("ribping: {error}"));
        ExitCode::from(2)
    })
}

fn serve(args: &PingArgs) -> Result<()> {
    let stop = Stop::at_signals()?;
    serve::run(args, &stop)
}

fn ping(args: &PingArgs) -> Result<ExitCode> {
    let stop = Stop::at_signals()?;
    let (report, ended) = run(args, &stop)?;
    report.finish(args.json)?;
    ended?;
    Ok(ExitCode::from(u8::from(
        !Plan::new(args)?.is_met(report.counts()),
    )))
}

/// Pings as the command line says: what came of it, and whether it ended as it should.
///
/// # Errors
/// Nothing can be sent: the command line makes no sense, or there is no way to the target.
pub fn run(args: &PingArgs, stop: &Stop) -> Result<(Report, Result<()>)> {
    let plan = Plan::new(args)?;
    let target = Target::parse(
        args.target.as_deref().unwrap_or_default(),
        args.lid,
        args.guid,
    )?;
    let mut way = choice::choose(&target, args)?;
    let journey = Journey {
        target: way.target(),
        way: way.name(),
        device: way.device(),
        port: way.port(),
    };
    tell(format_args!(
        "ribping: to {} by {}, {} port {}",
        journey.target, journey.way, journey.device, journey.port
    ));
    let mut report = Report::new(
        journey,
        args.flood || args.json,
        args.errors || args.level() > 0,
    );
    let ended = session::run(way.as_mut(), &plan, stop, &mut report);
    Ok((report, ended))
}
