//! Lists of hosts for a mesh.

use std::path::Path;

use fleet::mesh::hosts::{self, Host};

use crate::{assert_printable, lossy};

/// The lines of a file, or one host.
pub fn host_lists(data: &[u8]) {
    let text = lossy(data);
    for hosts in [
        hosts::parse_lines(&text, Path::new("hosts")),
        hosts::parse_host(&text).map(|host| vec![host]),
    ]
    .into_iter()
    .flatten()
    {
        check(&hosts);
    }
}

fn check(hosts: &[Host]) {
    assert!(hosts.len() <= 1 << 20);
    for host in hosts.iter().take(100) {
        assert_printable(&host.name);
        assert!(!host.name.starts_with('-') && !host.name.contains('/'));
    }
}
