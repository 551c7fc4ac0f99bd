//! Profiles of NetworkManager in `/etc/NetworkManager/system-connections`.

use std::net::IpAddr;

use super::interface_files;
use super::root::{Root, is_name, unsigned};

const DIRECTORY: &str = "/etc/NetworkManager/system-connections";

/// The program that a profile configures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// NetworkManager.
    #[default]
    NetworkManager,
    /// systemd-networkd.
    Networkd,
    /// netplan.
    Netplan,
    /// The scripts ifup and ifdown, and wicked.
    Ifcfg,
}

impl Source {
    /// Returns the setting of a transport mode.
    pub fn mode(self, mode: &str) -> String {
        match self {
            Self::NetworkManager => format!("infiniband.transport-mode {mode}"),
            Self::Networkd => format!("Mode={mode}"),
            Self::Netplan => format!("infiniband-mode: {mode}"),
            Self::Ifcfg if mode == "connected" => "CONNECTED_MODE=yes".to_owned(),
            Self::Ifcfg => "CONNECTED_MODE=no".to_owned(),
        }
    }

    /// Returns the setting of an MTU.
    pub fn mtu(self, mtu: u32) -> String {
        match self {
            Self::NetworkManager => format!("infiniband.mtu {mtu}"),
            Self::Networkd => format!("MTUBytes={mtu}"),
            Self::Netplan => format!("mtu: {mtu}"),
            Self::Ifcfg => format!("MTU={mtu}"),
        }
    }

    /// Returns the command that applies a profile to an interface.
    pub fn apply(self, interface: &str) -> String {
        match self {
            Self::NetworkManager => format!("nmcli device reapply {interface}"),
            Self::Networkd => format!(
                "when nothing uses {interface}: networkctl reload; networkctl reconfigure {interface}"
            ),
            Self::Netplan => "netplan apply".to_owned(),
            Self::Ifcfg => {
                format!("when nothing uses {interface}: ifdown {interface}; ifup {interface}")
            }
        }
    }
}

/// The settings of a profile for an InfiniBand interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// The file.
    pub path: String,
    /// The program that it configures.
    pub source: Source,
    /// The name of the interface.
    pub interface: String,
    /// The transport mode: `datagram` or `connected`.
    pub mode: Option<String>,
    /// The MTU in bytes.
    pub mtu: Option<u32>,
    /// The partition key of a child interface.
    pub pkey: Option<u16>,
    /// The interface that a child interface belongs to.
    pub parent: Option<String>,
    /// The addresses, each with the length of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The gateway.
    pub gateway: Option<IpAddr>,
}

impl Profile {
    /// Returns the command, or the change to the file, that changes a setting.
    pub fn change(&self, setting: &str) -> String {
        match self.source {
            Source::NetworkManager => format!("nmcli con mod {} {setting}", self.interface),
            _ => format!("write {setting} in {}", self.path),
        }
    }
}

/// Returns the profiles of InfiniBand interfaces. Only root can read those of NetworkManager.
pub(crate) fn infiniband_profiles(root: &Root) -> Vec<Profile> {
    let mut profiles = of_network_manager(root);
    profiles.extend(interface_files::profiles(root));
    profiles
}

fn of_network_manager(root: &Root) -> Vec<Profile> {
    let files = root.files(DIRECTORY, ".nmconnection").into_iter();
    files
        .filter_map(|path| parse(&root.text(&path)?, path))
        .collect()
}

/// Returns the files of NetworkManager's profiles.
pub(crate) fn infiniband_files(root: &Root) -> Vec<String> {
    let profiles = of_network_manager(root).into_iter();
    profiles.map(|profile| profile.path).collect()
}

/// Parses the text of a profile, whose file is `path`.
pub fn parse(text: &str, path: String) -> Option<Profile> {
    let mut profile = Profile {
        path,
        ..Profile::default()
    };
    let mut is_infiniband = false;
    let mut section = "";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        match (section, key.trim(), value.trim()) {
            ("connection", "type", kind) => is_infiniband = kind == "infiniband",
            ("connection", "interface-name", name) => name.clone_into(&mut profile.interface),
            ("infiniband", "transport-mode", mode) => {
                profile.mode = Some(mode.to_ascii_lowercase());
            }
            ("infiniband", "mtu", mtu) => profile.mtu = mtu.parse().ok().filter(|mtu| *mtu > 0),
            ("infiniband", "p-key", pkey) => {
                profile.pkey = unsigned(pkey).and_then(|pkey| u16::try_from(pkey).ok());
            }
            ("infiniband", "parent", name) if is_name(name) => {
                profile.parent = Some(name.to_owned());
            }
            ("ipv4" | "ipv6", "gateway", gateway) => profile.gateway = gateway.parse().ok(),
            // A gateway can follow the address.
            ("ipv4" | "ipv6", key, value) if key.starts_with("address") => {
                let mut words = value.split([',', ';']).map(str::trim);
                let address = words.next().and_then(|word| word.split_once('/'));
                let address =
                    address.and_then(|(ip, bits)| Some((ip.parse().ok()?, bits.parse().ok()?)));
                profile.addresses.extend(address);
                let gateway = words.next().and_then(|word| word.parse().ok());
                profile.gateway = profile.gateway.or(gateway);
            }
            _ => {}
        }
    }
    (is_infiniband && !profile.interface.is_empty()).then_some(profile)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infiniband_profile_is_parsed() {
        let text = "[connection]\nid=x\ntype=infiniband\ninterface-name=mlx4_ib0\n\n[infiniband]\nmtu=65520\ntransport-mode=Connected\n\n[ipv4]\nmtu=1\n";
        let profile = parse(text, "x".into()).unwrap();
        assert_eq!(
            (
                profile.interface.as_str(),
                profile.mode.as_deref(),
                profile.mtu
            ),
            ("mlx4_ib0", Some("connected"), Some(65520))
        );
        assert_eq!(
            parse(&text.replace("=infiniband", "=ethernet"), String::new()),
            None
        );
    }
}
