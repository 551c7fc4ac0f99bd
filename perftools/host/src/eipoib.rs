//! The slaves of eIPoIB interfaces. eIPoIB (Ethernet over IPoIB) presents IPoIB interfaces as one
//! Ethernet interface.

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
