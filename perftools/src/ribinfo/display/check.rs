//! The output of `ribinfo check`: a list for terminals and files, one line for monitoring, or a
//! shell script.

use base::peer_text::one_line;
use checks::finding::{Finding, Level, worst};
use console::{Style, Term};
use serde::Serialize;

/// Version of the schema. It increases when a field changes its meaning or is removed.
pub const SCHEMA: u32 = 1;

/// The JSON document of `check --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Report<'a> {
    /// Version of the schema.
    pub schema: u32,
    /// The worst level.
    pub status: Level,
    /// The findings, worst first.
    pub findings: &'a [Finding],
}

/// Adapts a list of findings to the terminal: lines are wrapped at its width, and levels have
/// colours. Returns the list unchanged if standard output is not a terminal.
pub fn for_terminal(list: &str) -> String {
    let term = Term::stdout();
    if !term.is_term() {
        return list.to_owned();
    }
    let width = term.size_checked().map(|(_, columns)| usize::from(columns));
    let mut text = String::new();
    for line in list.lines() {
        let level = [Level::Ok, Level::Unknown, Level::Warning, Level::Fault]
            .into_iter()
            .find(|level| line.split(' ').next() == Some(level.to_string().as_str()));
        let line = width.map_or_else(|| line.to_owned(), |width| wrap(line, width));
        text += &match level.filter(|_| console::colors_enabled()) {
            Some(level) => paint(&line, level),
            None => line,
        };
        text.push('\n');
    }
    text
}

/// Returns the number of findings of each level, such as `1 fault, 2 warnings, 20 ok`.
pub fn count(findings: &[Finding]) -> String {
    let number = |level| {
        findings
            .iter()
            .filter(|finding| finding.level == level)
            .count()
    };
    let plural = |number: usize| if number == 1 { "" } else { "s" };
    let (faults, warnings) = (number(Level::Fault), number(Level::Warning));
    let mut text = format!(
        "{faults} fault{}, {warnings} warning{}",
        plural(faults),
        plural(warnings)
    );
    if number(Level::Unknown) > 0 {
        text += &format!(", {} unknown", number(Level::Unknown));
    }
    text + &format!(", {} ok", number(Level::Ok))
}

/// Returns one line: the worst level, the number of findings, and the first problem.
pub fn status(findings: &[Finding]) -> String {
    let first = findings
        .iter()
        .find(|finding| finding.level >= Level::Warning)
        .map_or_else(String::new, |finding| {
            let object = finding
                .object
                .as_ref()
                .map_or_else(String::new, |object| format!(" {object}"));
            format!("; {}{object}: {}", finding.check, finding.text)
        });
    let line = format!("ribinfo: {}: {}{first}", worst(findings), count(findings));
    one_line(&line) + "\n"
}

/// Returns a shell script with the remedies. Those that could take something away, or that are no
/// complete commands, are comments.
pub fn fix_script(findings: &[Finding]) -> String {
    let mut text = "#!/bin/sh\n# Written by `ribinfo check --fix-script`. Read it before you run it.\nset -ex\n"
        .to_owned();
    let mut written: Vec<&str> = Vec::new();
    for finding in findings {
        let Some(remedy) = finding
            .remedy
            .as_deref()
            .filter(|remedy| !written.contains(remedy))
        else {
            continue;
        };
        written.push(remedy);
        let title = Finding {
            remedy: None,
            ..finding.clone()
        };
        let line = one_line(remedy);
        let by_hand = if line == remedy && finding.is_command {
            ""
        } else {
            "# by hand: "
        };
        text += &format!("\n# {title}\n{by_hand}{line}\n");
    }
    text
}

/// Breaks a line between words, so that no part is wider than `width` if possible. All lines but
/// the first are indented below the check.
fn wrap(line: &str, width: usize) -> String {
    const INDENT: usize = 9;
    let (level, rest) = line.split_at(line.len().min(INDENT));
    let parts = report::text::wrap(rest, width.saturating_sub(INDENT));
    level.to_owned() + &parts.join(&format!("\n{:INDENT$}", ""))
}

/// Colours the level at the beginning of a line.
fn paint(line: &str, level: Level) -> String {
    let style = match level {
        Level::Ok => Style::new().green(),
        Level::Unknown => Style::new().cyan(),
        Level::Warning => Style::new().yellow(),
        Level::Fault => Style::new().red().bold(),
    };
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    format!("{} {rest}", style.apply_to(word).force_styling(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_wrapped_below_the_check() {
        let line = "fault    port rxe0/1: network interface v0 is down => ip link set v0 up";
        let wrapped = wrap(line, 40);
        assert_eq!(
            wrapped,
            "fault    port rxe0/1: network interface\n         v0 is down => ip link set v0 up"
        );
        assert_eq!(wrap(line, 400), line);
        assert!(wrap(line, 1).lines().count() > 5 && wrap("", 1).is_empty());
        assert_eq!(
            paint("fault    x", Level::Fault),
            "\u{1b}[31m\u{1b}[1mfault\u{1b}[0m    x"
        );
    }

    #[test]
    fn script_has_complete_commands_only() {
        let findings = [
            Finding::fault("down").with_command("ip link set v0 up"),
            Finding::fault("twice").with_remedy("rm /etc/file"),
            Finding::fault("also\ndown").with_remedy("reseat\nthe cable"),
            Finding::fault("broken").with_command("a\nb"),
            Finding::fault("again").with_command("ip link set v0 up"),
        ];
        let script = fix_script(&findings);
        assert_eq!(
            script.matches("\nip link set v0 up\n").count(),
            1,
            "{script}"
        );
        for by_hand in ["rm /etc/file", "reseat the cable", "a b"] {
            assert!(
                script.contains(&format!("\n# by hand: {by_hand}\n")),
                "{script}"
            );
        }
    }

    #[test]
    fn schema_is_up_to_date() {
        base::schema::assert_up_to_date::<Report<'_>>(
            "ribinfo-check",
            SCHEMA,
            "Output of ribinfo check --json",
        );
    }

    #[test]
    fn status_is_one_line() {
        let findings = [Finding::fault("a\nb").on("x/1"), Finding::ok("c")];
        assert_eq!(
            status(&findings),
            "ribinfo: fault: 1 fault, 0 warnings, 1 ok;  x/1: a b\n"
        );
        assert_eq!(status(&[]), "ribinfo: ok: 0 faults, 0 warnings, 0 ok\n");
    }
}
