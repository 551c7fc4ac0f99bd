//! Removes from the files and outputs of a host what no check evaluates, so that a capture has no
//! secrets. Each function keeps the keys of a list and drops the rest.

use serde_json::Value;

use crate::environment::Manager;
use crate::modules::is_module_name;
use crate::opensm::CHECKED_KEYS;
use crate::probe::{Firewall, Probe};
use crate::root::is_name;
use crate::spelling::{
    Words, export_words, limit_words, misspelled_words, opensm_words, profile_words,
};
use crate::udev::UdevRule;

/// Keeps the lines for which `keep` returns a text. The numbers of lines do not change.
fn lines(text: &str, mut keep: impl FnMut(&str) -> Option<String>) -> String {
    let kept = text
        .lines()
        .map(|line| keep(line.trim()).unwrap_or_default() + "\n");
    kept.collect()
}

/// Keeps the lines that begin with one of these words.
pub(crate) fn prefixes(text: &str, prefixes: &[&str]) -> String {
    lines(text, |line| {
        let is_kept = prefixes.iter().any(|prefix| line.starts_with(prefix));
        is_kept.then(|| line.to_owned())
    })
}

/// Keeps these assignments `KEY=VALUE`, and the names of those that `words` finds misspelled.
pub(crate) fn assignments(text: &str, keys: &[&str], words: Words) -> String {
    lines(text, |line| {
        let assignment = line.strip_prefix("export ").unwrap_or(line);
        let (key, value) = assignment.split_once('=')?;
        let Some(key) = keys.iter().find(|known| **known == key.trim()) else {
            let word = misspelled_words(line, words).pop()?.0;
            return Some(format!("{word}=?"));
        };
        let value = value.split('#').next().unwrap_or_default().trim();
        Some(format!("{key}={value}"))
    })
}

/// Keeps these keys of these sections of an INI file.
pub(crate) fn ini(text: &str, keys: &[(&str, &str)]) -> String {
    let mut section = String::new();
    lines(text, |line| {
        if let Some(name) = line.strip_prefix('[') {
            let name = name.trim_end_matches(']').trim();
            section = name.to_ascii_lowercase();
            let is_kept = keys.iter().any(|(known, _)| *known == section);
            return is_kept.then(|| format!("[{section}]"));
        }
        let (key, value) = line.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        if keys.contains(&(section.as_str(), key)) {
            return Some(format!("{key}={value}"));
        }
        let word = misspelled_words(line, profile_words).pop()?.0;
        (word == key).then(|| format!("{key}=?"))
    })
}

/// Keeps the settings of an InfiniBand interface in a profile of NetworkManager. Other profiles are
/// omitted.
pub(crate) fn profile(text: &str) -> Option<String> {
    const KEYS: [(&str, &str); 12] = [
        ("connection", "type"),
        ("connection", "interface-name"),
        ("infiniband", "transport-mode"),
        ("infiniband", "mtu"),
        ("infiniband", "p-key"),
        ("infiniband", "parent"),
        ("ipv4", "address1"),
        ("ipv4", "addresses"),
        ("ipv4", "gateway"),
        ("ipv6", "address1"),
        ("ipv6", "addresses"),
        ("ipv6", "gateway"),
    ];
    crate::nm::parse(text, String::new())?;
    Some(ini(text, &KEYS))
}

/// Keeps the keys of `opensm.conf` that are checked, and the names of similar ones.
pub(crate) fn opensm(text: &str) -> String {
    lines(text, |line| {
        let line = line.split('#').next().unwrap_or_default().trim();
        let (key, value) = line
            .split_once(|c: char| c.is_whitespace() || c == '=')
            .unwrap_or((line, ""));
        if CHECKED_KEYS.contains(&key) {
            return Some(line.to_owned());
        }
        misspelled_words(line, opensm_words).pop()?;
        let value = if value.trim().is_empty() { "" } else { " ?" };
        Some(format!("{key}{value}"))
    })
}

/// Keeps the first word of each line if it is a number.
pub(crate) fn guids(text: &str) -> String {
    lines(text, |line| {
        let word = line.split('#').next()?.split_whitespace().next()?;
        let is_number = word
            .bytes()
            .all(|b| b.is_ascii_hexdigit() || b"xX:".contains(&b));
        Some(if is_number { word } else { "?" }.to_owned())
    })
}

/// Keeps the definitions in `partitions.conf`: no comments, and only numbers and known words.
pub(crate) fn partitions(text: &str) -> String {
    lines(text, |line| {
        let line = line.split('#').next().unwrap_or_default();
        let mut kept = String::new();
        let mut is_value = false;
        for part in line.split_inclusive([',', ':', ';', '=']) {
            // An mgid contains colons.
            let (token, end) = match part.char_indices().next_back() {
                Some((at, ',' | ':' | ';' | '=')) => part.split_at(at),
                _ => (part, ""),
            };
            let token = token.trim();
            let is_word = token.len() <= 32
                && token
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_');
            let is_number = token.starts_with(|c: char| c.is_ascii_digit())
                && token.bytes().all(|b| b.is_ascii_hexdigit() || b == b'x');
            let is_known = ["full", "limited", "both"].contains(&token);
            kept += if is_number
                || is_known
                || (!is_value && is_word)
                || token.bytes().all(|b| b.is_ascii_hexdigit())
            {
                token
            } else {
                "?"
            };
            kept += end;
            is_value = end == "=";
        }
        Some(kept)
    })
}

/// Keeps the limits of locked memory, and misspelled words of other limits.
pub(crate) fn memlock(text: &str) -> String {
    lines(text, |line| {
        let misspelled = misspelled_words(line, limit_words);
        let line = line.split('#').next().unwrap_or_default();
        let mut words: Vec<&str> = line.split_whitespace().collect();
        if matches!(words.as_slice(), [_, _, "memlock", _]) {
            return Some(words.join(" "));
        }
        for word in &mut words {
            let is_kept = misspelled.iter().any(|(known, _)| known == word);
            *word = if is_kept { word } else { "?" };
        }
        (!misspelled.is_empty()).then(|| words.join(" "))
    })
}

/// Keeps the names of modules, and those of the checked modules in comments.
pub(crate) fn modules(text: &str) -> String {
    const CHECKED: [&str; 6] = [
        "ib_uverbs",
        "rdma_ucm",
        "ib_umad",
        "rpcrdma",
        "xprtrdma",
        "svcrdma",
    ];
    lines(text, |line| {
        let name = line.trim_start_matches('#').trim();
        let is_checked = CHECKED.contains(&name.replace('-', "_").as_str());
        let is_kept = is_module_name(name) && (!line.starts_with('#') || is_checked);
        is_kept.then(|| line.to_owned())
    })
}

/// Replaces the entries of a file of exports by one word, and keeps misspelled options.
pub(crate) fn exports(text: &str) -> String {
    lines(text, |line| {
        let is_entry = !line.is_empty() && !line.starts_with('#');
        let options = misspelled_words(line, export_words).into_iter();
        let options: Vec<&str> = options.map(|(word, _)| word).collect();
        is_entry.then(|| format!("exported ({})", options.join(",")))
    })
}

/// Keeps the NFS mounts, with the options that select the transport. The server is kept for RDMA.
pub(crate) fn mounts(text: &str) -> String {
    lines(text, |line| {
        let mount = crate::nfs::mounts(line).pop()?;
        let source = if mount.rdma { &mount.source } else { "?" };
        let transport = if mount.rdma { "rdma" } else { "tcp" };
        let port = mount
            .port
            .map_or_else(String::new, |port| format!(",port={port}"));
        let on_demand = if mount.is_on_demand { ",noauto" } else { "" };
        Some(format!(
            "{source} {} nfs {transport}{port}{on_demand} 0 0",
            mount.target
        ))
    })
}

/// Keeps what [`mounts`] keeps, and the mounts of the device nodes.
pub(crate) fn mounts_and_dev(text: &str) -> String {
    let of_nodes = lines(text, |line| {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, target @ ("/dev" | "/dev/infiniband"), _, options, ..] = words.as_slice() else {
            return None;
        };
        let is_nodev = options.split(',').any(|option| option == "nodev");
        is_nodev.then(|| format!("? {target} ? nodev 0 0"))
    });
    of_nodes + &mounts(text)
}

/// Keeps the parts of udev's rules that name an interface.
pub(crate) fn udev_rules(text: &str) -> String {
    const KEYS: [&str; 8] = [
        "ACTION",
        "SUBSYSTEM",
        "DRIVERS",
        "KERNEL",
        "NAME",
        "ATTR{address}",
        "ATTR{type}",
        "ATTR{dev_port}",
    ];
    lines(text, |line| {
        if line.starts_with('#') {
            return None;
        }
        let parts = UdevRule::parse(line).parts.into_iter();
        let kept = parts.filter(|part| KEYS.contains(&part.key.as_str()));
        let kept = kept.map(|part| format!("{}{}\"{}\"", part.key, part.operator, part.value));
        Some(kept.collect::<Vec<_>>().join(", "))
    })
}

/// Keeps the words of the kernel's command line that configure the IOMMU.
pub(crate) fn command_line(text: &str) -> String {
    lines(text, |line| {
        let words = line.split_whitespace();
        let words: Vec<&str> = words
            .filter(|word| matches!(*word, "iommu=pt" | "iommu.passthrough=1"))
            .collect();
        Some(words.join(" "))
    })
}

/// Keeps the program that started a process.
pub(crate) fn cgroup(text: &str) -> String {
    Manager::from_cgroup(text).map_or_else(String::new, |manager| manager.to_cgroup())
}

/// Keeps the first word of each line.
pub(crate) fn first_words(text: &str) -> String {
    lines(text, |line| {
        Some(line.split_whitespace().next()?.to_owned())
    })
}

/// Keeps the ports of listening sockets.
pub(crate) fn sockets(text: &str) -> String {
    let ports = crate::listeners::listening(text).into_iter();
    let line = |(port, _)| format!("0: 00000000:{port:04X} 00000000:0000 0A 0:0 0:0 0 0 0 0\n");
    // The first line has the titles.
    std::iter::once("sl\n".to_owned())
        .chain(ports.map(line))
        .collect()
}

/// Removes comments and log prefixes from the rules of the packet filter. Omits names that are no
/// valid names, because they become part of commands.
pub(crate) fn probe(mut probe: Probe) -> Probe {
    probe.firewall = probe.firewall.map(firewall);
    probe.addresses = probe.addresses.map(|mut addresses| {
        addresses.retain(|address| is_name(&address.netdev));
        addresses
    });
    probe
}

fn firewall(mut firewall: Firewall) -> Firewall {
    for saved in [
        &mut firewall.iptables,
        &mut firewall.iptables_legacy,
        &mut firewall.ip6tables,
        &mut firewall.ip6tables_legacy,
    ] {
        *saved = saved
            .take()
            .map(|text| crate::filter::redacted_rules(&text));
    }
    firewall.nft = firewall.nft.take().map(|text| redacted_nft(&text));
    if let Some(json) = &firewall.nft_json {
        // A text that is not JSON is reported, and has no rules.
        firewall.nft_json = Some(match serde_json::from_str(json) {
            Ok(value) => redacted_json(value).to_string(),
            Err(_) => "invalid".to_owned(),
        });
    }
    firewall
}

/// Replaces the quoted texts of comments and log prefixes in the output of `nft list ruleset`.
fn redacted_nft(text: &str) -> String {
    let mut kept = String::new();
    for (at, part) in text.split('"').enumerate() {
        let is_free = ["comment ", "prefix "]
            .iter()
            .any(|word| kept.ends_with(&format!("{word}\"")));
        // Strings have odd positions. nft escapes no quotation marks.
        kept += if at % 2 == 1 && is_free { "…" } else { part };
        kept.push('"');
    }
    kept.pop();
    kept
}

fn redacted_json(value: Value) -> Value {
    match value {
        Value::Array(values) => values.into_iter().map(redacted_json).collect(),
        Value::Object(fields) => {
            let fields = fields.into_iter().filter(|(key, _)| key != "comment");
            let redact = |(key, value): (String, Value)| {
                let value = if key == "log" {
                    Value::Null
                } else {
                    redacted_json(value)
                };
                (key, value)
            };
            Value::Object(fields.map(redact).collect())
        }
        other => other,
    }
}
