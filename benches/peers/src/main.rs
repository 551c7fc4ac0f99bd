//! Runs the program of each crate under callgrind and prints the instructions per request as a
//! table. The programs must have been built beside this one.

use std::path::Path;
use std::process::{Command, ExitCode};

use benches_peers::{MEASURED, NOT_MEASURED, Result, Step, TIMES, Verbs};

/// Names of the programs, and of the crates in the table.
const PROGRAMS: [(&str, &str); 3] = [
    ("peer-sideway", "sideway"),
    ("peer-ibverbs", "ibverbs (jonhoo)"),
    ("peer-rdma-io", "rdma-io"),
];

fn main() -> ExitCode {
    match table() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn table() -> Result<()> {
    let own = std::env::current_exe()?;
    let directory = own.parent().ok_or("no directory of programs")?;
    let names = PROGRAMS.map(|(_, name)| name).join(" | ");
    println!("| step | verbs | {names} |\n|---|---|---:|---:|---:|");
    for step in Step::ALL {
        for verbs in Verbs::ALL {
            let mut cells = Vec::new();
            for (program, _) in PROGRAMS {
                cells.push(match count(&directory.join(program), step, verbs)? {
                    Some(count) => format!("{count:.0}"),
                    None => "–".to_owned(),
                });
            }
            println!("| {} | {verbs:?} | {} |", step.name(), cells.join(" | "));
        }
    }
    Ok(())
}

/// Returns the instructions per request, or `None` if the crate lacks the step.
fn count(program: &Path, step: Step, verbs: Verbs) -> Result<Option<f64>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={MEASURED}"))
        .arg(format!("--toggle-collect={NOT_MEASURED}"))
        .arg(program)
        .args([format!("{step:?}"), format!("{verbs:?}")])
        // The first call of a function of a library would look for its address.
        .env("LD_BIND_NOW", "1")
        .output()
        .map_err(|error| format!("run valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let failed = || format!("{} {step:?} {verbs:?}: {text}", program.display());
    if !output.status.success() {
        return Err(failed().into());
    }
    if output.stdout.starts_with(b"lacking") {
        return Ok(None);
    }
    let mut lines = text.lines();
    let collected = lines.find_map(|line| line.split("Collected : ").nth(1));
    let collected: f64 = collected.ok_or_else(failed)?.trim().parse()?;
    let requests = TIMES * u32::try_from(step.requests())?;
    Ok(Some(collected / f64::from(requests)))
}
