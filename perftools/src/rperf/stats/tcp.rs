//! The kernel's counters of TCP.

use std::fs;

/// Returns the number of TCP segments that the kernel has retransmitted in this network namespace;
/// `None` if it is unknown.
pub fn retransmitted() -> Option<u64> {
    parse(&fs::read_to_string("/proc/self/net/snmp").ok()?)
}

/// Returns the value of `RetransSegs` in the two lines of `Tcp:`, the names and the values.
pub(crate) fn parse(snmp: &str) -> Option<u64> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp:"));
    let (names, values) = (lines.next()?, lines.next()?);
    let mut fields = names.split_whitespace().zip(values.split_whitespace());
    let (_, value) = fields.find(|(name, _)| *name == "RetransSegs")?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_by_its_name() {
        let snmp =
            "Ip: Forwarding\nIp: 1\nTcp: InSegs OutSegs RetransSegs InErrs\nTcp: 10 20 7 0\n";
        assert_eq!(parse(snmp), Some(7));
        assert_eq!(parse("Tcp: InSegs\nTcp: 10\n"), None);
        assert!(retransmitted().is_some());
    }
}
