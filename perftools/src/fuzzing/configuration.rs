//! The files of a host that `ribinfo` reads, and the facts of a captured host.

use std::fs;
use std::path::{Path, PathBuf};

use super::{assert_printable, lossy};
use crate::ribinfo::check::{SUBJECTS, check};
use crate::ribinfo::collect::HostFacts;
use crate::ribinfo::collect::opensm::{Conf, Sysconfig};
use crate::ribinfo::collect::partitions;
use crate::ribinfo::collect::peer::PeerFacts;
use crate::ribinfo::collect::probe::Probe;
use crate::ribinfo::collect::root::Root;
use crate::ribinfo::display;

/// The captured hosts in `tests/fixtures/hosts`.
const HOSTS: [&str; 4] = ["ipoib", "mlx4", "rxe", "siw"];
/// First line of each file in an input of [`configuration`].
const FILE: &str = "@@ ";

/// A copy of a captured host.
struct Host {
    path: PathBuf,
    root: Root,
}

impl Host {
    fn new(name: &str) -> Self {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/hosts");
        let thread = format!("{:?}", std::thread::current().id());
        let path = std::env::temp_dir().join(format!(
            "rdma-fuzz-{}-{}-{name}",
            std::process::id(),
            thread.replace(|c: char| !c.is_ascii_digit(), "")
        ));
        copy(&from.join(name), &path).expect("a captured host");
        let root = Root::at(&path).expect("a captured host");
        Self { path, root }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

thread_local! {
    static COPIES: [Host; 4] = HOSTS.map(Host::new);
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)?.flatten() {
        let (kind, to) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            copy(&entry.path(), &to)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// Checks a host and asserts that the output is safe to print.
fn check_host(facts: &HostFacts<'_>) {
    let names: Vec<String> = SUBJECTS.iter().map(|s| s.name.to_owned()).collect();
    let findings = check(facts, &names);
    assert_printable(&display::lines(&findings));
    assert_printable(&display::check::fix_script(&findings));
    assert_printable(&display::check::status(&findings));
}

/// Checks a captured host with the facts of a peer.
pub(super) fn check_with_peer(peer: PeerFacts) {
    COPIES.with(|hosts| {
        for (host, peer) in [(&hosts[2], peer.clone()), (&hosts[0], peer)] {
            let facts = HostFacts::read(&host.root, &["peer".to_owned()], Some(Ok(peer)));
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
    COPIES.with(|hosts| {
        let host = &hosts[usize::from(*first) % hosts.len()];
        let mut restore: Vec<(PathBuf, Option<Vec<u8>>)> = Vec::new();
        for file in split_files(data) {
            let Some((path, content)) = file else {
                continue;
            };
            let path = host.path.join(path);
            let before = fs::read(&path).ok();
            if path
                .parent()
                .is_some_and(|parent| fs::create_dir_all(parent).is_ok())
                && fs::write(&path, content).is_ok()
            {
                restore.push((path, before));
            }
        }
        check_host(&HostFacts::read(&host.root, &[], None));
        for text in [
            display::stat::show(&host.root, None, None, false),
            display::gids::show(&host.root, false),
            display::links::show(&host.root, true),
            display::devices::show(&host.root, false),
        ] {
            match text {
                // ibstat indents with tabs.
                Ok(text) => assert_printable(&text.replace('\t', " ")),
                Err(error) => assert_printable(&error.to_string()),
            }
        }
        for (path, before) in restore.into_iter().rev() {
            let restored = match before {
                Some(before) => fs::write(&path, before),
                None => fs::remove_file(&path),
            };
            restored.expect("the copy is writable");
        }
    });
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
    COPIES.with(|hosts| {
        for host in [&hosts[0], &hosts[2]] {
            let mut facts = HostFacts::read(&host.root, &[], None);
            facts.probe = probe.clone();
            check_host(&facts);
        }
    });
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
