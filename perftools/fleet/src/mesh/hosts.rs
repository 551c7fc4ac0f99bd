//! Lists of hosts: from the command line, a file or a Slurm job.

use std::path::Path;
use std::process::{Command, Stdio};

use base::error::{Error, Kind, Result};
use base::files::read_text;
use base::peer_text::printable;

/// Maximum length of a name in bytes, as in the domain name system.
const MAX_NAME: usize = 255;

/// A host and the TCP port of its server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// Host name or address.
    pub name: String,
    /// TCP port; `None` for the default.
    pub port: Option<u16>,
}

/// Parses `HOST`, `HOST:PORT`, `ADDRESS`, or `[ADDRESS]:PORT`.
pub fn parse_host(text: &str) -> Result<Host> {
    let invalid = || {
        Error::usage(format!(
            "`{}` is not a host; expected HOST, HOST:PORT or [IPv6]:PORT",
            printable(text)
        ))
    };
    let (name, port) = if let Some(rest) = text.strip_prefix('[') {
        let (name, port) = rest.split_once(']').ok_or_else(invalid)?;
        match port.strip_prefix(':') {
            None if port.is_empty() => (name, None),
            Some(port) => (name, Some(port)),
            None => return Err(invalid()),
        }
    } else {
        match text.split_once(':') {
            // More colons belong to an IPv6 address.
            Some((name, port)) if !port.contains(':') => (name, Some(port)),
            _ => (text, None),
        }
    };
    if !is_name(name) {
        return Err(invalid());
    }
    Ok(Host {
        name: name.to_owned(),
        port: port.map(str::parse).transpose().map_err(|_| invalid())?,
    })
}

/// Returns `true` if the text can be the name of a host. Names are printed and are arguments of
/// commands.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && c != '/';
    (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with('-')
        && text.chars().all(is_plain)
        && printable(text) == text
}

/// Reads a file with one host per line. Empty lines and text after `#` are ignored.
pub fn read_file(path: &Path) -> Result<Vec<Host>> {
    parse_lines(&read_text(path)?, path)
}

/// Parses the text of a file with one host per line. Errors name `path`.
///
/// # Errors
/// Returns an error that names the first line that is not a host.
pub fn parse_lines(text: &str, path: &Path) -> Result<Vec<Host>> {
    let mut hosts = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        // Further words of a line, such as the slots of an MPI host file, are not needed.
        let line = line.split('#').next().unwrap_or_default();
        if let Some(word) = line.split_whitespace().next() {
            let at = format!("line {number} of {}", path.display());
            hosts.push(parse_host(word).map_err(|e| e.context(at))?);
        }
    }
    Ok(hosts)
}

/// Returns the hosts of the Slurm job that this process runs in, as `scontrol show hostnames` lists
/// them.
pub fn slurm_job() -> Result<Vec<Host>> {
    let list = std::env::var("SLURM_JOB_NODELIST").map_err(|_| {
        Error::usage("SLURM_JOB_NODELIST is not set").with_help(
            "run it in a Slurm job, as in `salloc --nodes=4 rperf mesh --start slurm rc_bw`, or name the hosts",
        )
    })?;
    let mut scontrol = Command::new("scontrol");
    let text = output(scontrol.args(["show", "hostnames", &list]))?;
    parse_lines(&text, Path::new("the output of scontrol"))
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| Error::system(format!("cannot run {program}"), &e))?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let text = printable(text.trim());
        return Err(Error::new(
            Kind::System,
            format!("{program} failed: {text}"),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_support::temp_dir::TempDir;

    fn names(hosts: &[Host]) -> Vec<&str> {
        hosts.iter().map(|h| h.name.as_str()).collect()
    }

    #[test]
    fn hosts_have_optional_ports() {
        for (text, name, port) in [
            ("node1", "node1", None),
            ("node1:7", "node1", Some(7)),
            ("fd00::1", "fd00::1", None),
            ("[fd00::1]:7", "fd00::1", Some(7)),
            ("[fd00::1]", "fd00::1", None),
        ] {
            let host = parse_host(text).unwrap();
            assert_eq!((host.name.as_str(), host.port), (name, port), "{text}");
        }
        for text in [
            "",
            ":7",
            "a:b",
            "a:99999",
            "[::1",
            "[::1]7",
            "-oProxyCommand=x",
            "a/b",
        ] {
            assert_eq!(parse_host(text).unwrap_err().exit_status(), 2, "{text}");
        }
    }

    #[test]
    fn names_can_be_printed() {
        for name in [
            "a\u{202e}b",
            "a\u{200b}",
            "a\x1b[2J",
            "\u{fe2f}",
            &"n".repeat(256),
        ] {
            assert!(parse_host(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn host_files_have_comments_and_slots() {
        let dir = TempDir::new();
        let path = dir.write("hosts", "# racks\nn1 slots=4\n\nn2:7 # new\n");
        let hosts = read_file(&path).unwrap();
        assert_eq!(names(&hosts), ["n1", "n2"]);
        assert_eq!(hosts[1].port, Some(7));
        let path = dir.write("bad", "n1\nn2:x\n");
        let error = read_file(&path).unwrap_err().to_string();
        assert!(error.contains("line 2 of"), "{error}");
    }
}
