//! The output of `ribinfo check`: a list for terminals and files, one line for monitoring, or a
//! shell script.

use base::peer_text::one_line;
use checks::finding::{Finding, Level, worst};
use serde::Serialize;

/// Version of the schema. It increases when a field changes its meaning or is removed.
pub(crate) const SCHEMA: u32 = 1;

/// The JSON document of `check --json`.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct CheckReport<'a> {
    /// Version of the schema.
    pub schema: u32,
    /// The worst level.
    pub status: Level,
    /// The findings, worst first.
    pub findings: &'a [Finding],
}

/// Returns the number of findings of each level, such as `1 fault, 2 warnings, 20 ok`.
pub(crate) fn count(findings: &[Finding]) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

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
        base::schema::assert_up_to_date::<CheckReport<'_>>(
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
