//! Lists of hosts: from the command line, a file, an Ansible inventory or a Slurm node list.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use base::error::{Error, Kind, Result};
use base::files::read_text;
use base::peer_text::printable;
use serde_json::Value;

/// Largest number of hosts that a Slurm node list may name.
const MAX_HOSTS: usize = 65_536;
/// Maximum length of a name in bytes, as in the domain name system.
const MAX_NAME: usize = 255;
/// Maximum number of brackets in a name of a Slurm node list. Slurm has up to five dimensions.
const MAX_BRACKETS: usize = 5;

/// A host and the TCP port of its server.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Host {
    /// Host name or address.
    pub name: String,
    /// TCP port; `None` for the default.
    pub port: Option<u16>,
    /// Name of its Kubernetes pod.
    pub pod: Option<String>,
}

/// Parses `HOST`, `HOST:PORT`, `ADDRESS`, or `[ADDRESS]:PORT`.
///
/// # Errors
/// Returns a usage error if the port is not a number.
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
        pod: None,
    })
}

/// Returns `true` if the text can be the name of a host or of a pod. Names are printed and are
/// arguments of commands.
fn is_name(text: &str) -> bool {
    let is_plain = |c: char| !c.is_whitespace() && c != '/';
    (1..=MAX_NAME).contains(&text.len())
        && !text.starts_with('-')
        && text.chars().all(is_plain)
        && printable(text) == text
}

/// Reads a file with one host per line. Empty lines and text after `#` are ignored.
///
/// # Errors
/// Returns an error if the file cannot be read or a line is not a host.
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

/// Reads the hosts of a group from an Ansible inventory. A file that is not the output of
/// `ansible-inventory --list` is given to this program.
///
/// # Errors
/// Returns an error if the inventory cannot be read or has no such group.
pub fn read_inventory(path: &Path, group: &str) -> Result<Vec<Host>> {
    let is_json = |text: &str| text.trim_start().starts_with('{');
    let text = match read_text(path) {
        Ok(text) if is_json(&text) => text,
        _ => list_inventory(path)?,
    };
    parse_inventory(&text, group).map_err(|e| e.context(path.display()))
}

fn list_inventory(path: &Path) -> Result<String> {
    let output = Command::new("ansible-inventory")
        .arg("-i")
        .arg(path)
        .arg("--list")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| {
            Error::system("cannot run ansible-inventory", &e).with_help(
                "install ansible-core, or pass a file with the output of `ansible-inventory --list`",
            )
        })?;
    if !output.status.success() {
        return Err(Error::new(
            Kind::System,
            format!(
                "ansible-inventory failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            ),
        ));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the hosts of a group in the output of `ansible-inventory --list`, with their variable
/// `ansible_host` as the name.
///
/// # Errors
/// Returns an error if the text is not an inventory, or has no such group.
pub fn parse_inventory(text: &str, group: &str) -> Result<Vec<Host>> {
    let inventory: Value = serde_json::from_str(text)
        .map_err(|e| Error::protocol(format!("not the output of ansible-inventory --list: {e}")))?;
    if group != "all" && inventory.get(group).is_none() {
        return Err(Error::usage(format!(
            "the inventory has no group `{group}`"
        )));
    }
    let mut names = BTreeSet::new();
    let mut seen = BTreeSet::new();
    let mut groups = vec![group.to_owned()];
    while let Some(name) = groups.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        let strings = |key: &str| {
            let list = inventory[&name][key]
                .as_array()
                .cloned()
                .unwrap_or_default();
            list.into_iter()
                .filter_map(|v| v.as_str().map(str::to_owned))
        };
        names.extend(strings("hosts"));
        groups.extend(strings("children"));
    }
    let address = |name: &String| {
        let variables = &inventory["_meta"]["hostvars"][name];
        variables["ansible_host"]
            .as_str()
            .unwrap_or(name)
            .to_owned()
    };
    names
        .iter()
        .map(|name| parse_host(&address(name)))
        .collect()
}

/// Expands a Slurm node list such as `gpu[01-03,7],login`.
///
/// # Errors
/// Returns a usage error if the list is invalid.
pub fn expand_nodelist(list: &str) -> Result<Vec<Host>> {
    let invalid = || {
        Error::usage(format!(
            "`{}` is not a Slurm node list; expected one such as node[01-16,20],login",
            printable(list)
        ))
    };
    let mut names = Vec::new();
    for part in split_outside_brackets(list).ok_or_else(invalid)? {
        let is_short = part.matches('[').count() <= MAX_BRACKETS;
        is_short
            .then(|| expand(part, &mut names))
            .flatten()
            .ok_or_else(invalid)?;
    }
    if names.is_empty() {
        return Err(invalid());
    }
    names.iter().map(|name| parse_host(name)).collect()
}

/// Splits at commas outside of brackets.
fn split_outside_brackets(list: &str) -> Option<Vec<&str>> {
    let (mut parts, mut begin, mut is_inside) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            '[' if !is_inside => is_inside = true,
            ']' if is_inside => is_inside = false,
            '[' | ']' => return None,
            ',' if !is_inside => {
                parts.push(&list[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[begin..]);
    (!is_inside).then_some(parts)
}

/// Expands the first bracket of a name, and the others recursively.
fn expand(name: &str, names: &mut Vec<String>) -> Option<()> {
    let Some((prefix, rest)) = name.split_once('[') else {
        if name.is_empty() || name.len() > MAX_NAME || names.len() >= MAX_HOSTS {
            return None;
        }
        names.push(name.to_owned());
        return Some(());
    };
    let (ranges, suffix) = rest.split_once(']')?;
    if prefix.len() > MAX_NAME {
        return None;
    }
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (from, to) = (first.parse::<u64>().ok()?, last.parse::<u64>().ok()?);
        let width = first.len();
        if from > to || to - from >= MAX_HOSTS as u64 || width > MAX_NAME {
            return None;
        }
        for number in from..=to {
            expand(&format!("{prefix}{number:0width$}{suffix}"), names)?;
        }
    }
    Some(())
}

/// Returns the running pods in the output of `kubectl get pods -o json`.
///
/// # Errors
/// Returns an error if it is not a list of pods, or if no pod is running.
pub fn parse_pods(text: &str) -> Result<Vec<Host>> {
    let list: Value = serde_json::from_str(text)
        .map_err(|e| Error::protocol(format!("kubectl printed no list of pods: {e}")))?;
    let pods = list["items"].as_array().cloned().unwrap_or_default();
    let mut hosts = Vec::new();
    for pod in &pods {
        let name = pod["metadata"]["name"].as_str();
        let address = pod["status"]["podIP"].as_str();
        if let (Some(name), Some(address), Some("Running")) =
            (name, address, pod["status"]["phase"].as_str())
        {
            if !is_name(name) || !is_name(address) {
                return Err(Error::protocol(format!(
                    "kubectl printed the invalid name `{}` or address `{}` of a pod",
                    printable(name),
                    printable(address)
                )));
            }
            hosts.push(Host {
                name: address.to_owned(),
                port: None,
                pod: Some(name.to_owned()),
            });
        }
    }
    if hosts.is_empty() {
        return Err(Error::new(
            Kind::System,
            format!("no pod is running: kubectl listed {} pods", pods.len()),
        )
        .with_help("check the label with `kubectl get pods --selector LABEL=VALUE`"));
    }
    Ok(hosts)
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
    fn slurm_node_lists_are_expanded() {
        for (list, expected) in [
            ("login", "login"),
            ("gpu[01-03,7],login", "gpu01 gpu02 gpu03 gpu7 login"),
            ("r[1-2]n[08-09]-ib", "r1n08-ib r1n09-ib r2n08-ib r2n09-ib"),
            ("n[098-101]", "n098 n099 n100 n101"),
        ] {
            assert_eq!(names(&expand_nodelist(list).unwrap()).join(" "), expected);
        }
        for list in [
            "",
            "n[",
            "n]1[",
            "n[3-1]",
            "n[a-b]",
            "a,,b",
            "n[1-99999999]",
            "n[1[2]]",
        ] {
            assert!(expand_nodelist(list).is_err(), "{list}");
        }
        // Neither the stack nor the memory grows with the list.
        for list in [
            "[1]".repeat(40_000),
            format!("n[{}1-{}9999]", "0".repeat(60_000), "0".repeat(60_000)),
            format!("{}[1-9999]", "n".repeat(60_000)),
            format!("n[1-9999]{}", "n".repeat(60_000)),
        ] {
            assert!(expand_nodelist(&list).is_err());
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
            let pods = serde_json::json!({"items": [{
                "metadata": {"name": name},
                "status": {"podIP": "10.0.0.1", "phase": "Running"}
            }]});
            let error = parse_pods(&pods.to_string()).unwrap_err().to_string();
            assert!(error.contains("invalid name"), "{error}");
        }
    }

    #[test]
    fn inventories_have_groups_and_addresses() {
        // The output of ansible-inventory 2.19 for an inventory in INI format.
        let text = r#"{"_meta": {"hostvars": {"n1": {"ansible_host": "10.0.0.1"}, "n2": {}}},
            "all": {"children": ["ungrouped", "ib"]}, "ib": {"children": ["rack1"]},
            "rack1": {"hosts": ["n1", "n2"]}, "ungrouped": {"hosts": ["login"]}}"#;
        assert_eq!(
            names(&parse_inventory(text, "ib").unwrap()),
            ["10.0.0.1", "n2"]
        );
        assert_eq!(parse_inventory(text, "all").unwrap().len(), 3);
        let error = parse_inventory(text, "gpu").unwrap_err().to_string();
        assert!(error.contains("no group `gpu`"), "{error}");
        let dir = TempDir::new();
        let path = dir.write("inventory.json", text);
        assert_eq!(read_inventory(&path, "rack1").unwrap().len(), 2);
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
