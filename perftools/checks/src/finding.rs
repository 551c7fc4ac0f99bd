//! A finding: its severity, the object it concerns, the observation, and the remedy.

use std::fmt;

use base::error::split_help;
use base::peer_text::one_line;
use host::HostFacts;
use serde::Serialize;

/// The severity of a finding. A greater value is worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// Correct, or information only.
    Ok,
    /// Not decided, because a fact is not known.
    Unknown,
    /// Working, but slow, lost at a reboot, or not available to all users.
    Warning,
    /// Not working.
    Fault,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Fault => "fault",
        })
    }
}

/// One line of `ribinfo check`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "testing"), derive(schemars::JsonSchema))]
pub struct Finding {
    /// The severity.
    pub level: Level,
    /// The name of the check, set by [`check`](super::check).
    pub check: &'static str,
    /// The object that the finding concerns, for example a port or a file. `None` means the whole
    /// host.
    pub object: Option<String>,
    /// The observation and its consequence.
    pub text: String,
    /// The command or the change to a file that corrects the problem.
    pub remedy: Option<String>,
    /// The remedy is a complete command that can take nothing away: it neither overwrites a file,
    /// nor interrupts a link or a service, nor removes an object.
    #[serde(skip)]
    pub is_command: bool,
}

impl Finding {
    /// Creates a finding with [`Level::Ok`].
    pub fn ok(text: impl Into<String>) -> Self {
        Self::new(Level::Ok, text)
    }

    /// Creates a finding with [`Level::Unknown`].
    pub(crate) fn unknown(text: impl Into<String>) -> Self {
        Self::new(Level::Unknown, text)
    }

    /// Creates a finding with [`Level::Warning`].
    pub(crate) fn warning(text: impl Into<String>) -> Self {
        Self::new(Level::Warning, text)
    }

    /// Creates a finding with [`Level::Fault`].
    pub fn fault(text: impl Into<String>) -> Self {
        Self::new(Level::Fault, text)
    }

    fn new(level: Level, text: impl Into<String>) -> Self {
        Self {
            level,
            check: "",
            object: None,
            text: text.into(),
            remedy: None,
            is_command: false,
        }
    }

    /// Sets the object that the finding concerns.
    #[must_use]
    pub fn on(mut self, object: impl fmt::Display) -> Self {
        self.object = Some(object.to_string());
        self
    }

    /// Sets a remedy that a script may run: a complete command that can take nothing away.
    #[must_use]
    pub fn with_command(self, command: impl Into<String>) -> Self {
        Self {
            is_command: true,
            ..self.with_remedy(command)
        }
    }

    /// Sets a remedy that a person must carry out. A remedy of an error in the text is omitted,
    /// because the check knows the host better.
    #[must_use]
    pub fn with_remedy(mut self, remedy: impl Into<String>) -> Self {
        let (cause, _) = split_help(&self.text);
        self.text.truncate(cause.len());
        self.remedy = Some(remedy.into());
        self
    }
}

/// Commands that change the kernel or the services of a host, not those of a container.
const HOST_COMMANDS: &str = "modprobe udevadm systemctl dmesg devlink rdma echo mkdir chmod \
    cpupower driverctl ibportstate setpci";

impl Finding {
    /// Adapts the remedy to the place of this process: in a container, commands for the kernel are
    /// for its host, and the packages of MLNX_OFED have another name of opensm's service.
    #[must_use]
    pub(crate) fn for_place(mut self, facts: &HostFacts) -> Self {
        let Some(mut remedy) = self.remedy.take() else {
            return self;
        };
        if facts.modules.has_openibd {
            for command in ["enable --now opensm", "restart opensm"] {
                remedy = remedy.replace(command, &format!("{command}d"));
            }
        }
        let word = remedy.split(' ').next().unwrap_or_default();
        if facts.environment.container.is_some()
            && HOST_COMMANDS.split(' ').any(|known| known == word)
        {
            remedy = format!("on the host: {remedy}");
            self.is_command = false;
        }
        self.remedy = Some(remedy);
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
            self.level, self.check, self.text
        );
        // Texts from files and programs can contain control characters and hidden ones.
        f.write_str(&one_line(&line))
    }
}

/// Returns the worst level.
pub fn worst(findings: &[Finding]) -> Level {
    findings
        .iter()
        .map(|finding| finding.level)
        .max()
        .unwrap_or(Level::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_is_one_line_and_levels_have_an_order() {
        let finding = Finding {
            check: "port",
            ..Finding::fault("DOWN")
                .on("rxe0/1")
                .with_remedy("ip link set v0 up")
        };
        assert_eq!(
            finding.to_string(),
            "fault    port rxe0/1: DOWN => ip link set v0 up"
        );
        let text_with_controls = Finding {
            check: "port",
            ..Finding::ok("\x1b[2J\nfault")
        };
        assert_eq!(text_with_controls.to_string(), "ok       port:  [2J fault");
        assert_eq!(worst(&[]), Level::Ok);
        assert_eq!(
            worst(&[Finding::unknown("x"), Finding::ok("y")]),
            Level::Unknown
        );
        assert_eq!(worst(&[finding, Finding::warning("y")]), Level::Fault);
    }
}
