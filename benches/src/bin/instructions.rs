//! Counts the instructions per request of each case with callgrind and prints them as a table.
//!
//! The program runs itself under valgrind with the argument `run`. With `check`, it fails if a safe
//! program needs more than [`LIMIT`] instructions more than C.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fs;
use std::process::{Command, ExitCode};

use benches::{CASES, Case, LENT, OTHERS, PEER_STEPS, VARIANTS, Verbs};

/// Iterations of each case.
const TIMES: u32 = 1000;
/// Instructions per request that a safe program may need more than C.
const LIMIT: f64 = 40.0;
/// The same for each row of [`OTHERS`]: what it needs now.
const OTHER_LIMITS: [f64; OTHERS.len()] = [115.0, 70.0, 48.0, 42.0, 73.0, 73.0, 73.0, 25.0];
/// The same for a slice that was lent to a scope, which counts the requests that use it. The table
/// handles their completions apart from the others, which must not cost more.
const LENT_LIMIT: f64 = 72.0;
/// Rows that need more, with held memory or with buffers, because C does not copy the completions.
const EXCEPTIONS: &[(&str, Verbs, [f64; 2])] = &[
    ("send", Verbs::InPlace, [50.0, 58.0]),
    ("batch of 32", Verbs::InPlace, [44.0, 49.0]),
    ("receive", Verbs::InPlace, [48.0, 63.0]),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        [] => table().map(|_| true),
        ["check"] => table(),
        ["run", verbs] => run_cases(verbs).map(|()| true),
        _ => Err("unknown arguments; expected: check, or none".into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!(
                "instructions: a row exceeds its limit (`LIMIT`, `LENT_LIMIT`, `OTHER_LIMITS`, `EXCEPTIONS`)"
            );
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the cases with the verbs of this name, under callgrind.
fn run_cases(verbs: &str) -> Result<(), Box<dyn Error>> {
    for case in all_cases().filter(|case| format!("{:?}", case.verbs) == verbs) {
        case.run(&mut case.rig()?, TIMES as usize)
            .map_err(|error| format!("{}: {error}", case.function))?;
    }
    Ok(())
}

fn all_cases() -> impl Iterator<Item = &'static Case> {
    CASES.iter().chain(&LENT).chain(OTHERS.as_flattened())
}

/// Prints the tables. Returns `true` if no row exceeds the limit.
fn table() -> Result<bool, Box<dyn Error>> {
    let counts = count()?;
    let (counts, others) = counts.split_at(CASES.len());
    let (lent, others) = others.split_at(LENT.len());
    let mut is_within_limit = true;
    println!(
        "| step | verbs | C | raw | raw / C | held memory | more | C, buffers | buffers | more |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|---:|");
    for (group, counts) in CASES.chunks(VARIANTS).zip(counts.chunks(VARIANTS)) {
        let [c, raw, held, c_buffers, buffers] = counts[..] else {
            return Err(format!("expected {VARIANTS} variants of each step").into());
        };
        let Case { step, verbs, .. } = group[0];
        let more = [held - c, buffers - c_buffers];
        let limits = EXCEPTIONS
            .iter()
            .find(|exception| (exception.0, exception.1) == (step, verbs))
            .map_or([LIMIT; 2], |exception| exception.2);
        is_within_limit &= more
            .iter()
            .zip(limits)
            .all(|(more, limit)| more.round() <= limit);
        println!(
            "| {step} | {verbs:?} | {c:.0} | {raw:.0} | {:.3} | {held:.0} | {:+.0} | {c_buffers:.0} | {buffers:.0} | {:+.0} |",
            raw / c,
            more[0],
            more[1]
        );
    }
    println!("\n| step | verbs | C | lent slices | more |\n|---|---|---:|---:|---:|");
    for (Case { step, verbs, .. }, lent) in LENT.iter().zip(lent) {
        let of_c = |case: &Case| (case.step, case.verbs, case.variant) == (step, *verbs, "C");
        let index = CASES.iter().position(of_c);
        let c = counts[index.ok_or("a step without a C program")?];
        is_within_limit &= (lent - c).round() <= LENT_LIMIT;
        println!(
            "| {step} | {verbs:?} | {c:.0} | {lent:.0} | {:+.0} |",
            lent - c
        );
    }
    println!("\n| step | verbs | C | held memory | more |\n|---|---|---:|---:|---:|");
    let rows = OTHERS.iter().zip(others.chunks(2)).zip(OTHER_LIMITS);
    for (([Case { step, verbs, .. }, _], counts), limit) in rows {
        let more = counts[1] - counts[0];
        is_within_limit &= more.round() <= limit;
        println!(
            "| {step} | {verbs:?} | {:.0} | {:.0} | {more:+.0} |",
            counts[0], counts[1]
        );
    }
    Ok(is_within_limit)
}

/// Returns the instructions per request of each case.
fn count() -> Result<Vec<f64>, Box<dyn Error>> {
    let all_verbs = [
        Verbs::Classic,
        Verbs::Extended,
        Verbs::Timestamps,
        Verbs::InPlace,
    ];
    let profiles = all_verbs.map(|verbs| (verbs, run_callgrind(verbs)));
    let count_of = |case: &Case| {
        let (_, profile) = profiles.iter().find(|(verbs, _)| *verbs == case.verbs)?;
        let instructions = *profile.as_ref().ok()?.get(case.function)?;
        // A C program is compared with several others, and runs for each of them.
        let is_same = |other: &&Case| (other.function, other.verbs) == (case.function, case.verbs);
        let runs = u32::try_from(all_cases().filter(is_same).count()).ok()?;
        Some(
            instructions
                / f64::from(runs)
                / f64::from(TIMES * u32::try_from(case.requests.max(1)).ok()?),
        )
    };
    let counts: Option<Vec<f64>> = all_cases().map(count_of).collect();
    for (_, profile) in profiles {
        profile?;
    }
    counts.ok_or_else(|| "callgrind did not count all functions".into())
}

/// Runs the cases with these verbs under callgrind. Returns the instructions of each measured
/// function with those of the functions that it calls.
fn run_callgrind(verbs: Verbs) -> Result<HashMap<String, f64>, Box<dyn Error>> {
    let file = std::env::temp_dir().join(format!("instructions.{}", std::process::id()));
    let functions: BTreeSet<&str> = all_cases().map(|case| case.function).collect();
    let output = Command::new("valgrind")
        .arg("--tool=callgrind")
        .args(
            functions
                .iter()
                .map(|name| format!("--toggle-collect={name}")),
        )
        // The measured functions call these, and their instructions are not counted.
        .args(
            PEER_STEPS
                .iter()
                .map(|name| format!("--toggle-collect={name}")),
        )
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe()?)
        .args(["run", &format!("{verbs:?}")])
        // The first call of a function of a library would look for its address.
        .env("LD_BIND_NOW", "1")
        .output()
        .map_err(|error| format!("run valgrind: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let profile = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    Ok(inclusive_costs(&profile))
}

/// Sums the costs of each function of a profile: the last numbers of the lines after `fn=`, which
/// are the costs of its own lines and of its calls.
fn inclusive_costs(profile: &str) -> HashMap<String, f64> {
    let mut costs = HashMap::new();
    let mut names: HashMap<&str, &str> = HashMap::new();
    let mut current = "";
    for line in profile.lines() {
        let called = line.strip_prefix("cfn=");
        if let Some(function) = called.or(line.strip_prefix("fn=")) {
            // The first line with a function has its number and its name, later lines the number.
            let (number, name) = function.split_once(' ').unwrap_or((function, ""));
            if !name.is_empty() {
                names.insert(number, name);
            }
            if called.is_none() {
                current = names.get(number).copied().unwrap_or("");
            }
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line
                .rsplit(' ')
                .next()
                .and_then(|cost| cost.parse::<f64>().ok());
            *costs.entry(current.to_owned()).or_default() += cost.unwrap_or(0.0);
        }
    }
    costs
}
