//! The modes and MTUs of IPoIB interfaces in the files of systemd-networkd, netplan and ifup.

use crate::nm::{Profile, Source};
use crate::root::{Root, is_name};

/// The directories, the beginning and the end of the names of their files, and their program.
pub(crate) const FILES: [(&str, &str, &str, Source); 4] = [
    ("/etc/systemd/network", "", ".network", Source::Networkd),
    ("/etc/netplan", "", ".yaml", Source::Netplan),
    (
        "/etc/sysconfig/network-scripts",
        "ifcfg-",
        "",
        Source::Ifcfg,
    ),
    ("/etc/sysconfig/network", "ifcfg-", "", Source::Ifcfg),
];

/// Returns the profiles of interfaces with a transport mode, without their addresses.
pub(crate) fn profiles(root: &Root) -> Vec<Profile> {
    let mut profiles = Vec::new();
    for (directory, begin, end, source) in FILES {
        let mut names = root.list(directory);
        names.retain(|name| name.starts_with(begin) && name.ends_with(end));
        for name in names {
            let path = format!("{directory}/{name}");
            let text = root.text(&path).unwrap_or_default();
            profiles.extend(parse(source, &text, &path));
        }
    }
    profiles
}

/// Parses the text of a file.
fn parse(source: Source, text: &str, path: &str) -> Vec<Profile> {
    let mut all: Vec<Profile> = Vec::new();
    let mut depths: Vec<usize> = Vec::new();
    let named = |name: &str| Profile {
        path: path.to_owned(),
        interface: name.to_owned(),
        source,
        ..Profile::default()
    };
    // The name of a file of ifup is that of the interface, unless a key has another one.
    if let Some((_, name)) = path.rsplit_once("/ifcfg-") {
        all.push(named(name));
        depths.push(0);
    }
    for line in text.lines() {
        let depth = line.len() - line.trim_start().len();
        let line = line.split('#').next().unwrap_or_default().trim();
        let Some((key, value)) = line.split_once(['=', ':']) else {
            continue;
        };
        let (key, value) = (key.trim(), value.trim().trim_matches(['"', '\'']));
        match (key, value) {
            (name, "") if source == Source::Netplan => {
                all.push(named(name));
                depths.push(depth);
            }
            ("Name", name) if source == Source::Networkd => {
                all.push(named(name));
                depths.push(0);
            }
            _ => {}
        }
        // In YAML, the interface is the last key without a value that is indented less.
        let is_key = |other: &usize| source != Source::Netplan || *other < depth;
        let Some(profile) = depths.iter().rposition(is_key).map(|at| &mut all[at]) else {
            continue;
        };
        match key {
            "DEVICE" => value.clone_into(&mut profile.interface),
            "Mode" | "infiniband-mode" | "IPOIB_MODE" if !value.is_empty() => {
                profile.mode = Some(value.to_ascii_lowercase());
            }
            "CONNECTED_MODE" => {
                let mode = if value == "yes" {
                    "connected"
                } else {
                    "datagram"
                };
                profile.mode = Some(mode.to_owned());
            }
            "MTUBytes" | "mtu" | "MTU" => profile.mtu = value.parse().ok(),
            // Another file configures the interface at the next start.
            "ONBOOT" if value == "no" => return Vec::new(),
            "STARTMODE" if matches!(value, "off" | "manual") => return Vec::new(),
            _ => {}
        }
    }
    // Other interfaces do not have these modes.
    let is_infiniband = |profile: &Profile| {
        let mode = profile.mode.as_deref();
        matches!(mode, Some("datagram" | "connected")) && is_name(&profile.interface)
    };
    all.retain(is_infiniband);
    all
}

/// Keeps the modes and MTUs of the interfaces in a file.
pub(crate) fn redacted(source: Source, text: &str, path: &str) -> Option<String> {
    let profiles = parse(source, text, path);
    let lines = profiles.iter().map(|profile| {
        let mode = source.mode(profile.mode.as_deref().unwrap_or_default());
        let mtu = profile.mtu.map_or_else(String::new, |mtu| source.mtu(mtu));
        let name = &profile.interface;
        match source {
            Source::Networkd => format!("[Match]\nName={name}\n[IPoIB]\n{mode}\n[Link]\n{mtu}\n"),
            Source::Netplan => format!("{name}:\n  {mode}\n  {mtu}\n"),
            Source::NetworkManager | Source::Ifcfg => format!("DEVICE={name}\n{mode}\n{mtu}\n"),
        }
    });
    (!profiles.is_empty()).then(|| lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_interfaces_are_parsed_and_captured() {
        for (source, path, text) in [
            (
                Source::Networkd,
                "/etc/systemd/network/a.network",
                "[Match]\nName=ib0\n[Link]\nMTUBytes=65520\n[IPoIB]\nMode=connected\n",
            ),
            (
                Source::Netplan,
                "/etc/netplan/a.yaml",
                "network:\n  ethernets:\n    eno1:\n      mtu: 9000\n    ib0:\n      infiniband-mode: connected # x\n      mtu: 65520\n",
            ),
            (
                Source::Ifcfg,
                "/etc/sysconfig/network-scripts/ifcfg-x",
                "DEVICE=ib0\nCONNECTED_MODE=yes\nMTU=65520\n",
            ),
            (
                Source::Ifcfg,
                "/etc/sysconfig/network/ifcfg-ib0",
                "IPOIB_MODE='connected'\nMTU='65520'\n",
            ),
        ] {
            let profiles = parse(source, text, path);
            let [profile] = profiles.as_slice() else {
                panic!("{profiles:?}");
            };
            let found = (
                profile.interface.as_str(),
                profile.mode.as_deref(),
                profile.mtu,
            );
            assert_eq!(found, ("ib0", Some("connected"), Some(65520)), "{path}");
            let captured = redacted(source, text, path).expect("a profile");
            assert_eq!(parse(source, &captured, path), profiles, "{captured}");
        }
        assert_eq!(
            redacted(Source::Ifcfg, "DEVICE=eno1\nMTU=9000\n", "x/ifcfg-eno1"),
            None
        );
    }
}
