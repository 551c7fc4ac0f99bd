//! The `ribinfo` program, from the command line to the exit status.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use base::error::{Error, Kind, Result};
use base::files::read_text;
use base::log::{self, log};
use base::memory::share_heap_if_limited;
use base::peer_text::{printable_json, printable_lines};
use base::spelling::similar;
use checks::finding::{Finding, Level, worst};
use checks::selection::Selection;
use checks::{CHECKS, expect};
use clap::Parser;
use fleet::export;
use host::peer::PeerFacts;
use host::root::Root;
use host::{HostFacts, capture};
use session::facts::request_facts;
use session::protocol::token::Token;

use super::args::{Check, Command, Export, Global, Info, other_tool};
use super::counters;
use super::display::check::{CheckReport, SCHEMA};
use super::display::{self, PROBLEM};
use crate::usage;

/// Shortest time between two readings of counters.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

/// Runs `ribinfo` and returns its exit code. The first argument is the name of the program.
pub fn main(args: impl IntoIterator<Item = String>) -> ExitCode {
    share_heap_if_limited();
    let args: Vec<String> = args.into_iter().collect();
    let info = match Info::try_parse_from(&args) {
        Ok(info) => info,
        Err(error) => return usage::exit("ribinfo", &error, |word| other_tool(&args, word)),
    };
    let status = match run(&info).and_then(|(text, status)| print(&text).map(|()| status)) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            log(format_args!(
                "ribinfo: {}",
                printable_lines(&error.to_string())
            ));
            ExitCode::from(error.exit_status())
        }
    };
    log::flush();
    status
}

/// Runs a command and returns its output, which is safe to print, and its exit status.
pub fn run(info: &Info) -> Result<(String, u8)> {
    let (text, status) = run_command(info)?;
    Ok((printable_lines(&text), status))
}

fn run_command(info: &Info) -> Result<(String, u8)> {
    let root = root(&info.global)?;
    let json = info.global.json;
    let text = match &info.command {
        Command::Devices {
            verbose,
            device,
            name,
            port,
        } => {
            let device = device.as_deref().or(name.as_deref());
            return display::devices::show(&root, *verbose, device, *port, json);
        }
        Command::Stat { device, name, port } => {
            let device = device.as_deref().or(name.as_deref());
            display::stat::show(&root, device, *port, json)?
        }
        Command::Gids => display::gids::show(&root, json)?,
        Command::Links => display::links::show(&root, json)?,
        Command::Sm { lid } => return display::sm::show(&root, *lid, json),
        Command::Check(options) => return run_check(&root, options, json),
        Command::Expect => expect::manifest(&HostFacts::read(&root, None)),
        Command::Facts => display::json(&PeerFacts::collect(&root))?,
        Command::Counters {
            port,
            watch,
            interval,
            ..
        } if *watch => {
            let interval = (*interval).max(MIN_INTERVAL);
            counters::watch(&root, port.as_deref(), interval).map(|()| String::new())?
        }
        Command::Counters { port, all, .. } => counters::once(&root, port.as_deref(), *all, json)?,
        Command::Export(options) => return run_export(&root, options),
        Command::Capture { directory } => capture(&root, directory)?,
    };
    Ok((text, 0))
}

/// Maximum number of entries of a table that are listed one by one.
const MAX_ENTRIES: usize = 16;

/// Returns a line for each file, and one for a table with many entries, such as the GIDs of a port.
fn file_list(files: &[String]) -> String {
    let table = |file: &String| {
        let (directory, name) = file.rsplit_once('/')?;
        let is_entry = name.bytes().all(|byte| byte.is_ascii_digit());
        is_entry.then(|| directory.to_owned())
    };
    let mut entries: BTreeMap<String, usize> = BTreeMap::new();
    for directory in files.iter().filter_map(table) {
        *entries.entry(directory).or_default() += 1;
    }
    entries.retain(|_, count| *count > MAX_ENTRIES);
    let is_single = |file: &&String| table(file).is_none_or(|table| !entries.contains_key(&table));
    let tables = entries
        .iter()
        .map(|(directory, count)| format!("{directory}/: {count} files"));
    display::lines(files.iter().filter(is_single)) + &display::lines(tables)
}

/// Writes a capture and returns the list of its files.
fn capture(root: &Root, directory: &Path) -> Result<String> {
    let result = capture::write(root, directory, &root.probe());
    let directory = directory.display();
    let files = result.map_err(|e| match e.kind() {
        ErrorKind::DirectoryNotEmpty => Error::usage(format!(
            "cannot capture to {directory}: the directory is not empty, or it is a link"
        ))
        .with_help("name a new or an empty directory"),
        _ => Error::system(format!("cannot capture to {directory}"), &e),
    })?;
    let count = format!(
        "{} files in {directory}, for their owner only\n",
        files.len()
    );
    Ok(file_list(&files) + &count)
}

fn root(global: &Global) -> Result<Root> {
    match &global.root {
        None => Ok(Root::host()),
        Some(path) => {
            Root::at(path).map_err(|e| Error::system(format!("cannot read {}", path.display()), &e))
        }
    }
}

fn run_export(root: &Root, options: &Export) -> Result<(String, u8)> {
    validate_names(root, &options.check, &options.skip)?;
    if options.listen.is_some() {
        return export::serve(root, &options.options()).map(|()| (String::new(), 0));
    }
    Ok((export::text(root, &options.options()), 0))
}

fn run_check(root: &Root, options: &Check, json: bool) -> Result<(String, u8)> {
    if options.list && json {
        return Ok((display::json(&CHECKS)?, 0));
    }
    if options.list {
        let lines: String = display::lines(
            CHECKS
                .iter()
                .map(|check| format!("{:<12}{}", check.name, check.about)),
        );
        return Ok((lines, 0));
    }
    validate_names(root, &options.checks, &options.skip)?;
    let peer = match (&options.peer, &options.peer_facts) {
        (Some(host), _) => {
            let token = options.token_file.as_deref().map(Token::read).transpose()?;
            let facts = request_facts(host, options.port, token.as_ref());
            Some(facts.map_err(|error| error.to_string()))
        }
        (None, Some(path)) => {
            let text = read_text(path)?;
            let facts: PeerFacts = serde_json::from_str(&printable_json(&text)).map_err(|e| {
                Error::new(
                    Kind::System,
                    format!(
                        "{} is not the output of `ribinfo facts`: {e}",
                        path.display()
                    ),
                )
            })?;
            Some(Ok(facts
                .validated()
                .map_err(|error| error.context(path.display()))?))
        }
        (None, None) => None,
    };
    let selection = Selection {
        checks: options.checks.clone(),
        skip: options.skip.clone(),
        expect: options.expect.clone(),
    };
    let facts = HostFacts::read(root, peer);
    let mut findings = selection.findings(&facts);
    // The order of the checks remains within a level.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.level));
    let level = worst(&findings);
    let is_problem = level == Level::Fault || (options.strict && level == Level::Warning);
    let exit_status = if is_problem { PROBLEM } else { 0 };
    if options.status {
        return Ok((display::check::status(&findings), exit_status));
    }
    if options.fix_script {
        return Ok((display::check::fix_script(&findings), exit_status));
    }
    let count = display::check::count(&findings);
    if options.quiet {
        let is_useful = |finding: &Finding| {
            finding.level > Level::Unknown
                || (finding.level == Level::Unknown && finding.remedy.is_some())
        };
        findings.retain(is_useful);
    }
    let text = if json {
        display::json(&CheckReport {
            schema: SCHEMA,
            status: level,
            findings: &findings,
        })?
    } else {
        if !options.verbose {
            findings = display::check::merged(&facts, &findings);
        }
        if !options.verbose && !options.quiet {
            findings = display::check::shortened(findings);
        }
        display::lines(&findings)
            + &if options.quiet {
                String::new()
            } else {
                count + "\n"
            }
    };
    Ok((text, exit_status))
}

/// Checks that the names are those of checks, and that what is skipped is a check, a device or
/// a port.
fn validate_names(root: &Root, checks: &[String], skip: &[String]) -> Result<()> {
    let is_path = |name: &&String| {
        name.contains('/') || root.exists(&format!("/sys/class/infiniband/{name}"))
    };
    let skipped = skip.iter().filter(|name| !is_path(name));
    let unknown = checks
        .iter()
        .chain(skipped)
        .find(|name| CHECKS.iter().all(|check| check.name != *name));
    let Some(unknown) = unknown else {
        return Ok(());
    };
    let error = Error::usage(format!("no check named `{unknown}`"));
    let list = "`ribinfo check --list` lists all checks";
    Err(error.with_help(
        match similar(unknown, CHECKS.iter().map(|check| check.name)) {
            Some(known) => format!("did you mean {known}? {list}"),
            None => list.to_owned(),
        },
    ))
}

pub(super) fn print(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|e| Error::system("cannot write the output", &e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_many_entries_has_one_line() {
        let gids = (0..100).map(|index| format!("/sys/gids/{index}"));
        let others = ["/sys/rate", "probe.json"].map(str::to_owned);
        let files: Vec<String> = gids.chain(others).collect();
        assert_eq!(
            file_list(&files),
            "/sys/rate\nprobe.json\n/sys/gids/: 100 files\n"
        );
    }
}
