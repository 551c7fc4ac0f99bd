//! Servers of RDMA tests that listen on a TCP port.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::tcp_table;

/// Names of programs, or the beginnings of their names.
const PROGRAMS: &[&str] = &[
    "rperf",
    "ribping",
    "ribinfo",
    "qperf",
    "ib_send_",
    "ib_write_",
    "ib_read_",
    "ib_atomic_",
    "raw_ethernet_",
    "rping",
];

/// A server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// The name of the program.
    pub program: String,
    /// The TCP port.
    pub port: u16,
}

/// Returns the servers of this host, without those of other users if this user is not root.
pub(crate) fn query() -> Vec<Listener> {
    let mut sockets = Vec::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        sockets.extend(listening(&fs::read_to_string(path).unwrap_or_default()));
    }
    let mut listeners: Vec<Listener> = Vec::new();
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let program = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
        let program = program.trim();
        if !PROGRAMS.iter().any(|name| program.starts_with(name)) {
            continue;
        }
        let open = sockets_of(&process.path());
        for (port, inode) in &sockets {
            let listener = Listener {
                program: program.to_owned(),
                port: *port,
            };
            if open.contains(inode) && !listeners.contains(&listener) {
                listeners.push(listener);
            }
        }
    }
    listeners.sort_by(|a, b| (a.port, &a.program).cmp(&(b.port, &b.program)));
    listeners
}

/// Returns the inodes of the sockets of a process.
fn sockets_of(process: &Path) -> Vec<String> {
    let files = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    files
        .filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            let inode = target
                .to_str()?
                .strip_prefix("socket:[")?
                .strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect()
}

/// Returns the ports and inodes of the listening sockets in the text of `/proc/net/tcp`.
pub fn listening(table: &str) -> Vec<(u16, String)> {
    tcp_table::listening(table)
        .filter_map(|(address, inode)| {
            let (_, port) = address.rsplit_once(':')?;
            Some((u16::from_str_radix(port, 16).ok()?, inode.to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_parsed() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   0: 00000000:1C06 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 123 1\n   1: 0100007F:0016 0100007F:1234 01 00000000:00000000 00:00000000 00000000     0        0 124 1\n";
        assert_eq!(listening(table), [(7174, "123".to_owned())]);
        assert!(listening("").is_empty() && listening("x\ny z").is_empty());
    }
}
