//! The slaves of eIPoIB interfaces.

/// A slave of an eIPoIB interface: `SLAVE=ib0.1 MAC=… VLAN=N/A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slave {
    /// The IPoIB interface.
    pub name: String,
    /// The Ethernet address that the slave represents.
    pub mac: String,
    /// The VLAN tag.
    pub vlan: Option<u16>,
}

/// Parses a line of `eth/vifs`.
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
