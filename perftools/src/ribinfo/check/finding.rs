//! A finding: how it stands, on what, why, and the command that mends it.

use std::fmt;

use serde::Serialize;

/// How bad it is; the greater, the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// As it should be, or a fact worth knowing.
    Ok,
    /// It works, but slower or not for long, or not for everyone.
    Warning,
    /// It does not work.
    Fault,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Fault => "fault",
        })
    }
}

/// One line of `ribinfo check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// The subject's name; the registry sets it.
    pub subject: &'static str,
    /// What it is about: a port, a file; none: the host.
    pub object: Option<String>,
    /// What was found, and what it means.
    pub text: String,
    /// The command, or the change to a file, that mends it.
    pub remedy: Option<String>,
}

impl Finding {
    /// All is well.
    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(Level::Ok, text)
    }

    /// It works, but.
    pub fn warning(text: impl Into<String>) -> Self {
        Self::new(Level::Warning, text)
    }

    /// It does not work.
    pub fn fault(text: impl Into<String>) -> Self {
        Self::new(Level::Fault, text)
    }

    fn new(level: Level, text: impl Into<String>) -> Self {
        Self {
            level,
            subject: "",
            object: None,
            text: text.into(),
            remedy: None,
        }
    }

    /// On what.
    #[must_use]
    pub fn on(mut self, object: impl fmt::Display) -> Self {
        self.object = Some(object.to_string());
        self
    }

    /// What mends it.
    #[must_use]
    pub fn mend(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = self
            .object
            .as_ref()
            .map_or_else(String::new, |object| format!(" {object}"));
        let remedy = self
            .remedy
            .as_ref()
            .map_or_else(String::new, |remedy| format!(" => {remedy}"));
        let line = format!(
            "{:<8} {}{object}: {}{remedy}",
            self.level, self.subject, self.text
        );
        // What files and programs say may be anything; a finding is one line of text.
        f.write_str(&line.replace(char::is_control, " "))
    }
}

/// The exit status: 0 healthy, 1 warnings only, 2 faults.
pub fn exit_status(findings: &[Finding]) -> u8 {
    match findings.iter().map(|finding| finding.level).max() {
        None | Some(Level::Ok) => 0,
        Some(Level::Warning) => 1,
        Some(Level::Fault) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_is_one_line_and_the_worst_decides() {
        let finding = Finding {
            subject: "port",
            ..Finding::fault("DOWN")
                .on("rxe0/1")
                .mend("ip link set v0 up")
        };
        assert_eq!(
            finding.to_string(),
            "fault    port rxe0/1: DOWN => ip link set v0 up"
        );
        let odd = Finding {
            subject: "port",
            ..Finding::ok("\x1b[2J\nfault")
        };
        assert_eq!(odd.to_string(), "ok       port:  [2J fault");
        assert_eq!(exit_status(&[]), 0);
        assert_eq!(exit_status(&[Finding::ok("x"), Finding::warning("y")]), 1);
        assert_eq!(exit_status(&[finding, Finding::warning("y")]), 2);
    }
}
