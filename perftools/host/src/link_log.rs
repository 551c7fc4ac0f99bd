//! Changes of links between up and down, from the kernel's log.

use std::fs;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::command::output;
use crate::root::is_name;

/// The changes of links that the kernel logged since it was started. Times are in seconds since
/// 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkLog {
    /// The time at which the kernel was started.
    pub boot: u64,
    /// The time at which the log was read.
    pub read: u64,
    /// The changes, the oldest one first.
    pub changes: Vec<LinkChange>,
}

/// A change of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkChange {
    /// The network interface.
    pub netdev: String,
    /// The time.
    pub at: u64,
    /// The link came up.
    pub up: bool,
}

/// Reads the journal of systemd, or the buffer of the kernel if there is no journal.
pub(crate) fn query() -> LinkLog {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let boot = boot.and_then(|time| time.parse().ok()).unwrap_or(0);
    let journal = ["-k", "-b", "-q", "-o", "short-unix", "--no-pager", "-g"];
    let journal = [&journal[..], &["link (is )?(up|down)"]].concat();
    let log = output("journalctl", &journal).or_else(|| output("dmesg", &[]));
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    LinkLog {
        boot,
        read: now.map_or(0, |now| now.as_secs()),
        changes: parse(&log.unwrap_or_default(), boot),
    }
}

/// Returns the changes in the output of `journalctl -o short-unix`, whose times begin in 1970, or
/// of `dmesg`, whose times are in brackets and begin at the start of the kernel.
pub fn parse(log: &str, boot: u64) -> Vec<LinkChange> {
    log.lines()
        .filter_map(|line| parse_line(line, boot))
        .collect()
}

fn parse_line(line: &str, boot: u64) -> Option<LinkChange> {
    let line = line.trim();
    let (time, text, start) = if let Some(rest) = line.strip_prefix('[') {
        let (time, text) = rest.split_once(']')?;
        (time, text, boot)
    } else {
        let (time, text) = line.split_once(' ')?;
        (time, text, 0)
    };
    let at: u64 = time.trim().split('.').next()?.parse().ok()?;
    let at = at.checked_add(start)?;
    // The drivers write `NETDEV: Link down` and `NETDEV: NIC Link is Down`.
    let lower = text.to_ascii_lowercase();
    let (found, up) = [
        ("link is down", false),
        ("link down", false),
        ("link is up", true),
        ("link up", true),
    ]
    .into_iter()
    .find_map(|(words, up)| Some((lower.find(words)?, up)))?;
    let before = text[..found].trim_end();
    let before = before.strip_suffix("NIC").unwrap_or(before).trim_end();
    let netdev = before.strip_suffix(':')?.rsplit(' ').next()?;
    is_name(netdev).then(|| LinkChange {
        netdev: netdev.to_owned(),
        at,
        up,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_drivers_are_parsed() {
        let log = "\
1700000100.000001 node1 kernel: mlx5_core 0000:12:00.0 ens1f0np0: Link down
1700000130.5 node1 kernel: mlx5_core 0000:12:00.0 ens1f0np0: Link up
[   60.304330] bnxt_en 0000:03:00.0 enp3s0: NIC Link is Down
[   62.582764] ice 0000:03:00.0 enp3s0: NIC Link is up 100 Gbps Full Duplex, FEC: RS-FEC
[   63.0] IPv6: ADDRCONF(NETDEV_UP): ib0: link is not ready
[   64.0] wlan: the link down is not one of a driver
";
        let changes = parse(log, 1000).into_iter();
        let changes: Vec<_> = changes.map(|c| (c.netdev, c.at, c.up)).collect();
        let expected = [
            ("ens1f0np0", 1_700_000_100, false),
            ("ens1f0np0", 1_700_000_130, true),
            ("enp3s0", 1060, false),
            ("enp3s0", 1062, true),
        ];
        assert_eq!(changes, expected.map(|(n, at, up)| (n.to_owned(), at, up)));
    }
}
