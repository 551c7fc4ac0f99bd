//! How this host calls itself in an answer: as ibping does.

use std::fs;

use crate::common::system;

/// `host`, or `host.domain` where there is a NIS domain, and a NUL.
pub fn nul_terminated() -> Vec<u8> {
    let host = system::host_name();
    let domain = fs::read_to_string("/proc/sys/kernel/domainname").unwrap_or_default();
    nul_terminated_from(&host, domain.trim())
}

fn nul_terminated_from(host: &str, domain: &str) -> Vec<u8> {
    // The kernel says "(none)" where none was set; ibping passes that on.
    let domain = if domain == "(none)" { "" } else { domain };
    let name = if domain.is_empty() {
        host.to_owned()
    } else {
        format!("{host}.{domain}")
    };
    let mut bytes = name.into_bytes();
    bytes.truncate(ibumad::mad::VENDOR_DATA_LEN - 1);
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_with_nul_and_fits() {
        assert_eq!(nul_terminated_from("node1", "(none)"), b"node1\0");
        assert_eq!(nul_terminated_from("node1", ""), b"node1\0");
        assert_eq!(nul_terminated_from("node1", "lab"), b"node1.lab\0");
        assert_eq!(nul_terminated_from(&"n".repeat(300), "").len(), 216);
    }
}
