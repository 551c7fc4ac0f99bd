//! Counts the instructions of each case under callgrind and prints them as a table.
//!
//! `cargo run --release -p benches --bin instructions` runs itself under valgrind once a case.

use std::error::Error;
use std::process::{Command, ExitCode};

use benches::{CASES, Case, SIDES};

const TIMES: usize = 1000;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let result = match argument.as_deref() {
        None => table(),
        Some(number) => one(number),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one case: what callgrind looks at.
fn one(number: &str) -> Result<(), Box<dyn Error>> {
    let case = CASES.get(number.parse::<usize>()?).ok_or("no such case")?;
    case.run(&mut case.rig()?, TIMES)?;
    Ok(())
}

fn table() -> Result<(), Box<dyn Error>> {
    println!(
        "| step | verbs | C | raw | raw / C | held memory | more | C, buffers | buffers | more |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (index, group) in CASES.chunks(SIDES).enumerate() {
        let counts: Vec<f64> = (0..group.len())
            .map(|place| count(index * SIDES + place, &group[place]))
            .collect::<Result<_, _>>()?;
        let [c, raw, held, c_buffers, buffers] = counts[..] else {
            return Err("a group has five cases".into());
        };
        let Case { what, form, .. } = group[0];
        println!(
            "| {what} | {form:?} | {c:.0} | {raw:.0} | {:.3} | {held:.0} | {:+.0} | {c_buffers:.0} | {buffers:.0} | {:+.0} |",
            raw / c,
            held - c,
            buffers - c_buffers
        );
    }
    Ok(())
}

/// Instructions of one request of a case.
fn count(number: usize, case: &Case) -> Result<f64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={}", case.function))
        .arg("--toggle-collect=aside_*") // called by it: what these do is left out
        .arg(std::env::current_exe()?)
        .arg(number.to_string())
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    let Some(collected) = collected.filter(|_| output.status.success()) else {
        return Err(format!("{}: {text}", case.function).into());
    };
    let requests = u32::try_from(TIMES * case.requests)?;
    Ok(collected.trim().parse::<f64>()? / f64::from(requests))
}
