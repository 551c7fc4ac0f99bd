//! eIPoIB (Ethernet over IPoIB), which presents IPoIB interfaces as one Ethernet interface.

use crate::root::Root;

/// The file that lists the interfaces.
const INTERFACES: &str = "/sys/class/net/eth_ipoib_interfaces";
/// The configuration of the service openibd, which a shell sources.
pub const OPENIB_CONF: &str = "/etc/infiniband/openib.conf";

/// The state and the configuration of eIPoIB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Eipoib {
    /// [`OPENIB_CONF`] enables eIPoIB.
    pub is_enabled: bool,
    /// The interfaces. `None` if the module is not loaded.
    pub interfaces: Option<Vec<Interface>>,
    /// `ib_ipoib` uses Enhanced mode, which eIPoIB does not support.
    pub is_enhanced: bool,
}

/// An Ethernet interface of eIPoIB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name.
    pub name: String,
    /// The IPoIB interface below it.
    pub port: String,
    /// The slaves.
    pub slaves: Vec<Slave>,
}

impl Eipoib {
    /// Reads the state and the configuration.
    pub(crate) fn read(root: &Root) -> Self {
        let conf = root.text(OPENIB_CONF).unwrap_or_default();
        // The last assignment wins.
        let enabled = conf
            .lines()
            .rev()
            .find_map(|line| line.trim().strip_prefix("LOAD_EIPOIB="));
        let interface = |line: &str| {
            let (name, port) = line.split_once(" over IB port: ")?;
            let (name, port) = (name.trim().to_owned(), port.trim().to_owned());
            let vifs = root.text(&format!("/sys/class/net/{name}/eth/vifs"));
            let slaves = vifs.unwrap_or_default().lines().filter_map(slave).collect();
            Some(Interface { name, port, slaves })
        };
        let interfaces = root.text(INTERFACES);
        Self {
            is_enabled: enabled.is_some_and(|value| value.trim_matches(['"', '\'']) == "yes"),
            interfaces: interfaces.map(|text| text.lines().filter_map(interface).collect()),
            is_enhanced: root.number("/sys/module/ib_ipoib/parameters/ipoib_enhanced")
                == Some(1_u32),
        }
    }
}

/// A slave of an eIPoIB interface, listed as `SLAVE=ib0.1 MAC=… VLAN=N/A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slave {
    /// Name of the IPoIB interface.
    pub name: String,
    /// Ethernet address whose traffic the slave carries.
    pub mac: String,
    /// VLAN of that traffic; `None` if it has no VLAN tag.
    pub vlan: Option<u16>,
}

/// Parses a line of `/sys/class/net/INTERFACE/eth/vifs`; returns `None` if it names no slave.
pub fn slave(line: &str) -> Option<Slave> {
    let value = |key: &str| {
        line.split_whitespace()
            .find_map(|word| word.strip_prefix(key))
    };
    Some(Slave {
        name: value("SLAVE=")?.to_owned(),
        mac: value("MAC=").unwrap_or_default().to_owned(),
        vlan: value("VLAN=")
            .and_then(|vlan| vlan.parse().ok())
            .filter(|vlan| (1..4095).contains(vlan)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slave_is_parsed() {
        let parsed = slave("SLAVE=ib0.1           MAC=9a:c2:1f:d7:3b:63 VLAN=N/A").unwrap();
        assert_eq!((parsed.name.as_str(), parsed.vlan), ("ib0.1", None));
        assert_eq!(slave("SLAVE=ib0.2 MAC=x VLAN=3").unwrap().vlan, Some(3));
        assert_eq!(slave("MAC=x"), None);
    }
}
