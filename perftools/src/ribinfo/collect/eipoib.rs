//! The slaves of eIPoIB interfaces.

/// A slave of an eIPoIB interface: `SLAVE=ib0.1 MAC=… VLAN=N/A`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slave {
    /// The IPoIB interface.
    pub name: String,
    /// The hardware address that it stands for.
    pub mac: String,
    /// The VLAN's tag.
    pub vlan: Option<u16>,
}

/// Reads a line of `eth/vifs`.
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
    fn slaves_are_read() {
        let read = slave("SLAVE=ib0.1           MAC=9a:c2:1f:d7:3b:63 VLAN=N/A").unwrap();
        assert_eq!((read.name.as_str(), read.vlan), ("ib0.1", None));
        assert_eq!(slave("SLAVE=ib0.2 MAC=x VLAN=3").unwrap().vlan, Some(3));
        assert_eq!(slave("MAC=x"), None);
    }
}
