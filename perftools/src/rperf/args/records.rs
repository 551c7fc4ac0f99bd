//! Command lines of `rperf compare` and `rperf report`, which read records of earlier runs.

use std::path::Path;

use super::Invocation;
use crate::common::error::{Error, Result};

/// Parses `compare OLD NEW [--threshold PERCENT]`.
pub(super) fn compare(args: &[String]) -> Result<Invocation> {
    let mut files = Vec::new();
    let mut threshold = 5.0;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = match arg.strip_prefix("--threshold") {
            Some("") => args.next().map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None if arg.starts_with("--") => {
                return Err(Error::usage(format!(
                    "rperf compare: no option named `{arg}`; available: --threshold"
                )));
            }
            None => {
                files.push(arg.clone());
                continue;
            }
        };
        let number = value.and_then(|v| v.trim_end_matches('%').trim_end().parse::<f64>().ok());
        threshold = number
            .filter(|n| (0.0..1000.0).contains(n))
            .ok_or_else(|| {
                Error::usage("--threshold needs a percentage from 0 to 1000, such as 5")
            })?;
    }
    match <[String; 2]>::try_from(files) {
        Ok([old, new]) => Ok(Invocation::Compare {
            old,
            new,
            threshold: threshold / 100.0,
        }),
        Err(_) => Err(Error::usage(
            "rperf compare needs two files, written with `rperf --json … > FILE`",
        )
        .with_help("run `rperf compare OLD NEW`; for a host named compare, use -H compare")),
    }
}

/// Parses `report [NAME=]FILE… [--output PAGE]`.
pub(super) fn report(args: &[String]) -> Result<Invocation> {
    let mut files = Vec::new();
    let mut output = None;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        let value = match arg.strip_prefix("--output") {
            Some("") => args.next().map(String::as_str),
            Some(rest) => rest.strip_prefix('='),
            None if arg == "-o" => args.next().map(String::as_str),
            None if arg.starts_with('-') && arg.len() > 1 => {
                return Err(Error::usage(format!(
                    "rperf report: no option named `{arg}`; available: --output (-o)"
                )));
            }
            None => {
                files.push(split_name(arg));
                continue;
            }
        };
        let page = value
            .filter(|v| !v.is_empty())
            .ok_or_else(|| Error::usage(format!("{arg} needs the name of a file")))?;
        output = Some(page.to_owned());
    }
    if files.is_empty() {
        return Err(Error::usage(
            "rperf report needs files, written with `rperf --json … > FILE`",
        )
        .with_help(
            "run `rperf report FILE… --output PAGE.html`; for a host named report, use -H report",
        ));
    }
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

    fn parse(line: &str) -> Result<Invocation> {
        report(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn files_have_optional_names() {
        let Ok(Invocation::Report { files, output }) = parse("old=a.json b.json -o page.html")
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
            parse("a --output=x"),
            Ok(Invocation::Report {
                output: Some(_),
                ..
            })
        ));
    }

    #[test]
    fn errors_name_the_missing_argument() {
        for (line, expected) in [
            ("", "needs files"),
            ("a --output", "needs the name of a file"),
            ("a --csv", "available: --output (-o)"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(
                error.to_string().contains(expected) && error.exit_status() == 2,
                "{line}: {error}"
            );
        }
    }
}
