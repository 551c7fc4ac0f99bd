//! The host name that the server sends in its replies, in ibping's format.

use std::fs;

use base::system;

/// Returns `host`, or `host.domain` if the host has a NIS domain, with a terminating NUL.
pub(super) fn nul_terminated() -> Vec<u8> {
    let host = system::host_name();
    let domain = fs::read_to_string("/proc/sys/kernel/domainname").unwrap_or_default();
    nul_terminated_from(&host, domain.trim())
}

fn nul_terminated_from(host: &str, domain: &str) -> Vec<u8> {
    // Without a NIS domain the kernel returns "(none)". ibping sends it; this omits it.
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
    fn names_end_with_nul_and_fit_the_datagram() {
        assert_eq!(nul_terminated_from("node1", "(none)"), b"node1\0");
        assert_eq!(nul_terminated_from("node1", ""), b"node1\0");
        assert_eq!(nul_terminated_from("node1", "lab"), b"node1.lab\0");
        assert_eq!(nul_terminated_from(&"n".repeat(300), "").len(), 216);
    }
}
