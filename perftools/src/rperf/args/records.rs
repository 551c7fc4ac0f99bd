//! Commands on records that were written before: `compare` and `report`.

use std::path::Path;

use super::Invocation;
use crate::common::error::{Error, Result};

/// `compare OLD NEW [--threshold PERCENT]`.
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
                    "{arg}: `rperf compare OLD NEW` has the option --threshold only"
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
            .ok_or_else(|| Error::usage("--threshold needs a number of percent, such as 5"))?;
    }
    match <[String; 2]>::try_from(files) {
        Ok([old, new]) => Ok(Invocation::Compare {
            old,
            new,
            threshold: threshold / 100.0,
        }),
        Err(_) => Err(Error::usage(
            "compare needs two files, each written by `rperf --json … > FILE`: `rperf compare OLD NEW` (a host of this name: -H compare)",
        )),
    }
}

/// `report [NAME=]FILE… [--output PAGE]`.
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
                    "{arg}: `rperf report FILE…` has the option --output (-o) only"
                )));
            }
            None => {
                files.push(named(arg));
                continue;
            }
        };
        let page = value
            .filter(|v| !v.is_empty())
            .ok_or_else(|| Error::usage(format!("{arg} needs a file to write to")))?;
        output = Some(page.to_owned());
    }
    if files.is_empty() {
        return Err(Error::usage(
            "report needs files, each written by `rperf --json … > FILE`: `rperf report FILE… --output PAGE.html` (a host of this name: -H report)",
        ));
    }
    Ok(Invocation::Report { files, output })
}

/// `NAME=FILE`, unless there is a file of all that.
fn named(arg: &str) -> (Option<String>, String) {
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

    fn of(line: &str) -> Result<Invocation> {
        report(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn files_have_names_where_given() {
        let Ok(Invocation::Report { files, output }) = of("old=a.json b.json -o page.html") else {
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
            of("a --output=x"),
            Ok(Invocation::Report {
                output: Some(_),
                ..
            })
        ));
    }

    #[test]
    fn what_is_missing_is_said() {
        for (line, says) in [
            ("", "needs files"),
            ("a --output", "needs a file"),
            ("a --csv", "--output (-o) only"),
        ] {
            let error = of(line).unwrap_err();
            assert!(
                error.to_string().contains(says) && error.exit_status() == 2,
                "{line}: {error}"
            );
        }
    }
}
