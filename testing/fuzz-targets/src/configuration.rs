//! The files of a host that `ribinfo` reads, and the facts of a captured host.

use std::path::{Path, PathBuf};

use checks::expect::Expectation;
use checks::selection::Selection;
use checks::{CHECKS, check};
use host::HostFacts;
use host::capture::{self, Entry};
use host::link_log::{self, LinkLog};
use host::opensm::{Conf, Sysconfig};
use host::peer::PeerFacts;
use host::probe::{Firewall, Probe};
use host::root::Root;
use host::{partitions, pci, transceiver};
use serde_json::{Value, json};

use crate::{assert_printable, lossy};
use perftools::ribinfo::display;

/// The captured hosts in `perftools/tests/fixtures/hosts`.
const HOSTS: [&str; 4] = ["ipoib", "mlx4", "rxe", "siw"];
/// First line of each file in an input of [`configuration`].
const FILE: &str = "@@ ";

thread_local! {
    /// The files of the captured hosts, in memory.
    static ROOTS: [Root; 4] = HOSTS.map(|name| {
        Root::in_memory(&directory_of(name)).expect("a captured host")
    });
}

fn directory_of(host: &str) -> PathBuf {
    let hosts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../perftools/tests/fixtures/hosts");
    hosts.join(host)
}

/// Checks a host and asserts that the output is safe to print.
fn check_host(facts: &HostFacts) {
    let names: Vec<String> = CHECKS.iter().map(|s| s.name.to_owned()).collect();
    let findings = check(facts, &names);
    assert_printable(&display::lines(&findings));
    assert_printable(&display::check::fix_script(&findings));
    assert_printable(&display::check::status(&findings));
}

/// Checks a captured host with the facts of a peer.
pub(super) fn check_with_peer(peer: PeerFacts) {
    ROOTS.with(|roots| {
        for (root, peer) in [(&roots[2], peer.clone()), (&roots[0], peer)] {
            let facts = HostFacts::read(root, Some(Ok(peer)));
            assert_printable(&display::lines(check(&facts, &["peer".to_owned()])));
        }
    });
}

/// Files of a captured host that are replaced or added: each one after a line `@@ /PATH`. The first
/// byte of the input selects the host.
pub fn configuration(data: &[u8]) {
    let Some((first, data)) = data.split_first() else {
        return;
    };
    ROOTS.with(|roots| {
        let root = &roots[usize::from(*first) % roots.len()];
        let mut shows_other = false;
        for (path, content) in split_files(data).flatten() {
            // These commands read no configuration files.
            shows_other |= !path.starts_with("etc/");
            root.memory().expect("in memory").write(&path, content);
        }
        check_host(&HostFacts::read(root, None));
        if shows_other {
            show(root);
        }
        root.memory().expect("in memory").restore();
    });
}

/// Shows the devices of a host with all commands that read only files.
fn show(root: &Root) {
    for text in [
        display::stat::show(root, None, None, false),
        display::gids::show(root, false),
        display::links::show(root, true),
        display::devices::show(root, true, None, None, false).map(|(text, _)| text),
    ] {
        match text {
            // ibstat indents with tabs.
            Ok(text) => assert_printable(&text.replace('\t', " ")),
            Err(error) => assert_printable(&error.to_string()),
        }
    }
}

/// Returns the relative paths of the files in an input, and their contents.
fn split_files(data: &[u8]) -> impl Iterator<Item = Option<(String, Vec<u8>)>> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        let text = String::from_utf8_lossy(line);
        match text.strip_prefix(FILE) {
            Some(path) => files.push((path.trim().to_owned(), Vec::new())),
            None => {
                if let Some((_, content)) = files.last_mut() {
                    content.extend(line);
                }
            }
        }
    }
    files.into_iter().map(|(path, content)| {
        let path = path.strip_prefix('/')?.to_owned();
        let is_plain = |part: &str| {
            !part.is_empty()
                && part != ".."
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        };
        (path.len() < 200 && path.split('/').all(is_plain)).then_some((path, content))
    })
}

/// Text that no capture contains.
const SECRET: &str = "s3cr$t!";

/// Files of a host with a secret, and the output of `iptables-save` (`/iptables`), `nft -a list
/// ruleset` (`/nft`) and `nft -j list ruleset` (`/nft.json`) with secret comments. The first byte
/// of the input selects the host, the second one the line of each file with the secret.
pub fn capture(data: &[u8]) {
    let [first, line, data @ ..] = data else {
        return;
    };
    let mut firewall = Firewall::default();
    ROOTS.with(|roots| {
        let root = &roots[usize::from(*first) % roots.len()];
        for (path, content) in split_files(data).flatten() {
            let text = lossy(&content);
            match path.as_str() {
                "iptables" => firewall.iptables = Some(with_comments(&text, "-A ", " --comment ")),
                "nft" => firewall.nft = Some(with_comments(&text, "", " comment ")),
                "nft.json" => firewall.nft_json = Some(with_json_comments(&text)),
                // The kernel writes the other files.
                _ if path.starts_with("etc/") => {
                    let text = with_line(&text, *line, &format!("psk={SECRET}"));
                    root.memory().expect("in memory").write(&path, text.into());
                }
                _ => root.memory().expect("in memory").write(&path, content),
            }
        }
        let probe = Probe {
            firewall: firewall.into(),
            ..root.probe()
        };
        let captured = entries(root, &probe);
        root.memory().expect("in memory").restore();
        let mut names = Vec::new();
        for (path, entry) in &captured {
            if let Entry::File(text) = entry {
                assert!(!text.contains(SECRET), "{path} has a secret: {text}");
            }
            assert!(!names.contains(path), "{path} is captured twice");
            names.push(path.clone());
        }
        // A capture of the capture is the same.
        for (path, entry) in &captured {
            if let Entry::File(text) = entry {
                let text = text.clone().into_bytes();
                root.memory().expect("in memory").write(path, text);
            }
        }
        let again = entries(root, &probe);
        root.memory().expect("in memory").restore();
        for (path, entry) in captured
            .iter()
            .filter(|(path, _)| path.starts_with("/etc/"))
        {
            let mut again = again.iter().filter(|(other, _)| other == path);
            assert_eq!(again.next().map(|(_, entry)| entry), Some(entry), "{path}");
        }
    });
}

fn entries(root: &Root, probe: &Probe) -> Vec<(String, Entry)> {
    let mut entries = Vec::new();
    let save = |path: &str, entry| {
        entries.push((path.to_owned(), entry));
        Ok(())
    };
    capture::visit(root, probe, save).expect("nothing is written");
    entries
}

/// Inserts a line.
fn with_line(text: &str, at: u8, line: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    let at = usize::from(at) % (lines.len() + 1);
    lines.insert(at, line);
    lines.join("\n") + "\n"
}

/// Adds a comment to each line that begins with `begin` and has no text in quotation marks.
fn with_comments(text: &str, begin: &str, option: &str) -> String {
    let lines = text.lines().map(|line| {
        let is_plain = !line.contains(['"', '\'', '\\']) && line.starts_with(begin);
        if is_plain && !text.contains('"') {
            format!("{line}{option}\"{SECRET} {SECRET}\"\n")
        } else {
            format!("{line}\n")
        }
    });
    lines.collect()
}

/// Adds a comment and a log prefix to each object of a JSON text.
fn with_json_comments(text: &str) -> String {
    fn add(value: &mut Value) {
        match value {
            Value::Array(values) => values.iter_mut().for_each(add),
            Value::Object(fields) => {
                fields.values_mut().for_each(add);
                fields.insert("comment".to_owned(), json!(SECRET));
                fields.insert("log".to_owned(), json!({ "prefix": SECRET }));
            }
            _ => {}
        }
    }
    match serde_json::from_str(text) {
        Ok(mut value) => {
            add(&mut value);
            value.to_string()
        }
        Err(_) => format!("{text}{SECRET}"),
    }
}

/// The `probe.json` of a captured host.
pub fn probe(data: &[u8]) {
    let Ok(probe) = serde_json::from_slice::<Probe>(data) else {
        return;
    };
    let text = serde_json::to_string(&probe).expect("JSON");
    assert_eq!(
        serde_json::from_str::<Probe>(&text).expect("the same JSON"),
        probe
    );
    ROOTS.with(|roots| {
        for root in [&roots[0], &roots[2]] {
            let mut facts = HostFacts::read(root, None);
            facts.probe = probe.clone();
            check_host(&facts);
        }
    });
}

/// The output of `dmesg`, `journalctl` and `ethtool -m`, a manifest of `ribinfo check --expect`,
/// and the configuration space of a PCI function.
pub fn host_output(data: &[u8]) {
    // An interface of the captured host.
    const NETDEV: &str = "mlx4_roce";
    let text = lossy(data);
    let changes = link_log::parse(&text, 1000);
    let transceiver = transceiver::parse(&text, NETDEV.to_owned());
    assert!(changes.len() <= text.lines().count());
    let selection = Selection {
        checks: vec!["link".to_owned()],
        expect: Expectation::from_manifest(&text).ok(),
        ..Selection::default()
    };
    ROOTS.with(|roots| {
        let mut facts = HostFacts::read(&roots[1], None);
        facts.probe.link_log = LinkLog {
            read: changes.last().map_or(0, |change| change.at),
            changes,
            ..LinkLog::default()
        }
        .into();
        facts.probe.transceivers = vec![transceiver].into();
        assert_printable(&display::lines(selection.findings(&facts)));
    });
    for capability in [0, 0x0d, 0x0f] {
        let _ = pci::control(data, capability);
    }
}

/// `opensm.conf`, and the file of its service.
pub fn opensm_files(data: &[u8]) {
    let text = lossy(data);
    let conf = Conf::parse("x", &text);
    assert_ne!(conf.guid(), Some(0));
    let lines = text.lines().count();
    assert!(
        conf.entries
            .iter()
            .all(|(line, _, _)| (1..=lines).contains(line))
    );
    for (_, key, _) in &conf.entries {
        let last = conf.entries.iter().rev().find(|(_, k, _)| k == key);
        let value = last.map(|(_, _, value)| value.as_str());
        assert!(conf.get(key).is_none_or(|found| Some(found) == value));
    }
    let _ = (conf.priority(), Sysconfig::parse("x", &text));
}

/// `partitions.conf`.
pub fn partitions_conf(data: &[u8]) {
    let read = partitions::parse(&lossy(data));
    for definition in &read.definitions {
        assert!(
            definition
                .pkey
                .is_none_or(|key| (1..=0x7fff).contains(&key))
        );
        let flags = &definition.flags;
        assert!(
            flags
                .mtu
                .is_none_or(|code| partitions::mtu_bytes(code).is_some())
        );
        assert!(
            flags
                .rate
                .is_none_or(|code| partitions::rate_mbps(code).is_some())
        );
    }
    let stops = read.problems.iter().filter(|problem| problem.fatal).count();
    assert!(stops <= 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_in_memory_are_the_same() {
        for name in HOSTS {
            let lines = |root: &Root| {
                let names: Vec<String> = CHECKS.iter().map(|s| s.name.to_owned()).collect();
                let facts = HostFacts::read(root, None);
                let stat = display::stat::show(root, None, None, false).expect("devices");
                let devices = display::devices::show(root, false, None, None, false)
                    .expect("devices")
                    .0;
                format!("{}{stat}{devices}", display::lines(check(&facts, &names)))
            };
            let (file, new) = ("/etc/rdma/opensm.conf", "/etc/new/directory/file");
            let memory = Root::in_memory(&directory_of(name)).expect("a captured host");
            let expected = lines(&Root::at(&directory_of(name)).expect("a captured host"));
            let before = memory.text(file);
            for path in [file, new, "/etc", "/proc/modules/file"] {
                memory.memory().expect("in memory").write(path, b"x".into());
            }
            assert_eq!(memory.text(file).as_deref(), Some("x"));
            assert!(memory.exists("/etc/new") && memory.list("/etc/new") == ["directory"]);
            assert!(memory.text("/etc").is_none() && memory.list("/proc/modules").is_empty());
            memory.memory().expect("in memory").restore();
            assert_eq!(
                (memory.text(file), memory.exists("/etc/new")),
                (before, false)
            );
            assert_eq!(lines(&memory), expected, "{name}");
        }
    }
}
