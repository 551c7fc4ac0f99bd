//! Counts the instructions per request of each case with callgrind and prints them as a table.
//!
//! Without an argument the program prints the table. For each case it runs itself under valgrind,
//! with the number of the case as the argument.

use std::error::Error;
use std::process::{Command, ExitCode};

use benches::{CASES, Case, VARIANTS};

/// Iterations of each case.
const TIMES: usize = 1000;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let result = match argument.as_deref() {
        None => table(),
        Some(number) => run_case(number),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one case, under callgrind.
fn run_case(number: &str) -> Result<(), Box<dyn Error>> {
    let case = CASES
        .get(number.parse::<usize>()?)
        .ok_or_else(|| format!("run case {number}: expected 0 to {}", CASES.len() - 1))?;
    case.run(&mut case.rig()?, TIMES)?;
    Ok(())
}

fn table() -> Result<(), Box<dyn Error>> {
    println!(
        "| step | verbs | C | raw | raw / C | held memory | more | C, buffers | buffers | more |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (index, group) in CASES.chunks(VARIANTS).enumerate() {
        let counts: Vec<f64> = (0..group.len())
            .map(|variant| count(index * VARIANTS + variant, &group[variant]))
            .collect::<Result<_, _>>()?;
        let [c, raw, held, c_buffers, buffers] = counts[..] else {
            return Err(format!("expected {VARIANTS} variants of each step").into());
        };
        let Case { step, verbs, .. } = group[0];
        println!(
            "| {step} | {verbs:?} | {c:.0} | {raw:.0} | {:.3} | {held:.0} | {:+.0} | {c_buffers:.0} | {buffers:.0} | {:+.0} |",
            raw / c,
            held - c,
            buffers - c_buffers
        );
    }
    Ok(())
}

/// Returns the instructions per request of a case.
fn count(number: usize, case: &Case) -> Result<f64, Box<dyn Error>> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(format!("--toggle-collect={}", case.function))
        // The measured function calls these, and their instructions are not counted.
        .arg("--toggle-collect=peer_step_*")
        .arg(std::env::current_exe()?)
        .arg(number.to_string())
        .output()
        .map_err(|error| format!("run valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let collected = text
        .lines()
        .find_map(|line| line.split("Collected : ").nth(1));
    let Some(collected) = collected.filter(|_| output.status.success()) else {
        return Err(format!("count instructions of {}: {text}", case.function).into());
    };
    let requests = u32::try_from(TIMES * case.requests)?;
    Ok(collected.trim().parse::<f64>()? / f64::from(requests))
}
