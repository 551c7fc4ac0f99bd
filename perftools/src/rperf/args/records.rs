//! Command lines of `rperf compare` and `rperf report`, which read records of earlier runs.

use std::path::Path;

use base::error::Result;
use clap::{CommandFactory, Parser};

use super::Invocation;
use crate::usage;

/// Compares the results of two runs, for each test that both have with the same parameters.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf compare",
    override_usage = "rperf compare [--threshold PERCENT] OLD NEW",
    after_help = "OLD and NEW are written with `rperf --json … > FILE`. With --repeat N in both runs, the\ndifference has a 95 % confidence interval. A difference between single runs is unclear,\nunless --threshold is set. The exit status is 1 if a result is worse by more than the\nthreshold.\n\nExample:\n    rperf --json --repeat 5 node1 rc_bw > old.json\n    rperf --json --repeat 5 node1 rc_bw > new.json\n    rperf compare old.json new.json"
)]
struct CompareArgs {
    /// Output of the old run
    old: String,
    /// Output of the new run
    new: String,
    /// Largest change in percent that counts as no change; if set, single runs are compared too
    /// [default: 5]
    #[arg(long, value_name = "PERCENT", value_parser = percentage)]
    threshold: Option<f64>,
}

/// Writes an HTML page with tables and plots of one or more runs.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf report",
    override_usage = "rperf report [NAME=]FILE… [--output PAGE]",
    after_help = "The files are written with `rperf --json … > FILE`. With two files the page has a table of\nthe changes from the first to the second.\n\nExample:\n    rperf report old=monday.json new=tuesday.json --output page.html"
)]
struct ReportArgs {
    /// Output of a run, and the name of the run on the page [default: the name of the file]
    #[arg(required = true, value_name = "[NAME=]FILE")]
    files: Vec<String>,
    /// File to write the page to [default: standard output, if it is not a terminal]
    #[arg(long, short, value_name = "PAGE", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    output: Option<String>,
}

fn percentage(text: &str) -> std::result::Result<f64, String> {
    let number = text.trim_end_matches('%').trim_end().parse::<f64>().ok();
    number
        .filter(|n| (0.0..1000.0).contains(n))
        .ok_or_else(|| "expected a percentage from 0 to 1000, such as 5".to_owned())
}

/// Returns the command `compare`.
pub(super) fn compare_command() -> clap::Command {
    CompareArgs::command()
}

/// Returns the command `report`.
pub(super) fn report_command() -> clap::Command {
    ReportArgs::command()
}

fn parse<P: Parser>(command: &str, args: &[String], remedy: &str) -> Result<P> {
    let words = std::iter::once(command).chain(args.iter().map(String::as_str));
    P::try_parse_from(words)
        .map_err(|error| usage::error(&error).context(command).with_help(remedy))
}

/// Parses `compare OLD NEW [--threshold PERCENT]`.
pub(super) fn compare(args: &[String]) -> Result<Invocation> {
    let CompareArgs {
        old,
        new,
        threshold,
    } = parse(
        "compare",
        args,
        "run `rperf compare OLD NEW` with two files of `rperf --json`; for a host named compare, use -H compare",
    )?;
    Ok(Invocation::Compare {
        old,
        new,
        threshold: threshold.map(|percent| percent / 100.0),
    })
}

/// Parses `report [NAME=]FILE… [--output PAGE]`.
pub(super) fn report(args: &[String]) -> Result<Invocation> {
    let ReportArgs { files, output } = parse(
        "report",
        args,
        "run `rperf report FILE… --output PAGE.html` with files of `rperf --json`; for a host named report, use -H report",
    )?;
    let files = files.iter().map(|file| split_name(file)).collect();
    Ok(Invocation::Report { files, output })
}

/// Splits `NAME=FILE`, unless a file with the whole text as its name exists.
fn split_name(arg: &str) -> (Option<String>, String) {
    match arg.split_once('=').filter(|_| !Path::new(arg).exists()) {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            (Some(name.to_owned()), file.to_owned())
        }
        _ => (None, arg.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn files_have_optional_names() {
        let Ok(Invocation::Report { files, output }) =
            report(&words("old=a.json b.json -o page.html"))
        else {
            panic!()
        };
        assert_eq!(
            files,
            [
                (Some("old".into()), "a.json".into()),
                (None, "b.json".into())
            ]
        );
        assert_eq!(output.as_deref(), Some("page.html"));
        assert!(matches!(
            report(&words("a --output=x")),
            Ok(Invocation::Report {
                output: Some(_),
                ..
            })
        ));
    }

    #[test]
    fn errors_name_the_missing_argument() {
        for (line, expected) in [
            ("", "<[NAME=]FILE>"),
            ("a --output", "a value is required for '--output"),
            ("a --text", "unexpected argument '--text'"),
        ] {
            let error = report(&words(line)).unwrap_err();
            assert!(
                error.to_string().contains(expected) && error.exit_status() == 2,
                "{line}: {error}"
            );
        }
        for (line, expected) in [
            ("a", "<NEW>"),
            ("a b c", "unexpected argument 'c'"),
            ("a b --threshold x", "expected a percentage"),
        ] {
            let error = compare(&words(line)).unwrap_err().to_string();
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
