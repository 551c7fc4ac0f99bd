//! Remedies for common failures, by function and errno.

use std::borrow::Cow;
use std::fs;

use ibverbs::{Device, Errno};

/// Returns the remedy for a common cause of `errno` from `verb`.
pub(crate) fn hint_for(verb: &str, errno: Errno) -> Option<Cow<'static, str>> {
    Some(match (verb, errno.0) {
        ("rdma_create_event_channel", libc::EACCES | libc::EPERM) => {
            "no right to the device node: check the mode of /dev/infiniband/rdma_cm".into()
        }
        ("rdma_create_event_channel", libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOSYS) => {
            "is /dev/infiniband/rdma_cm there? load the module rdma_ucm".into()
        }
        (_, libc::EMFILE | libc::ENFILE) => {
            "too many open files: every connection needs one descriptor; raise the limit with `ulimit -n`".into()
        }
        ("rdma_bind_addr" | "rdma_resolve_addr", libc::ENODEV) => no_device(),
        ("rdma_resolve_addr", libc::EADDRINUSE) => {
            "something else has the source port: choose another, 0 for any, or have both `reuse_address`".into()
        }
        ("rdma_join_multicast", ENOTSUPP) => "the kernel has no IPv6 groups on RoCE v2: use an IPv4 group".into(),
        ("rdma_bind_addr" | "rdma_listen", libc::EADDRINUSE) => {
            "another program listens on that port (`rdma resource show cm_id`, `ss -tln`): choose another".into()
        }
        ("rdma_bind_addr", libc::EADDRNOTAVAIL) => "this host does not have that address: see `ip address`".into(),
        ("rdma_bind_addr" | "rdma_listen", libc::EACCES | libc::EPERM) => {
            "ports below 1024 need the capability net_bind_service".into()
        }
        ("rdma_resolve_addr", libc::ENETUNREACH) => {
            "no route to that address: `ip route get ADDRESS` shows what the system would do".into()
        }
        ("rdma_resolve_addr", libc::EADDRNOTAVAIL) => {
            "the source address is not on this host, or of another family than the peer's".into()
        }
        ("rdma_resolve_addr", libc::ETIMEDOUT | libc::EHOSTUNREACH) => {
            "nobody answers for that address on the local network: is the peer up, in the same subnet, and the cable in?".into()
        }
        ("rdma_resolve_route", libc::ETIMEDOUT | libc::EHOSTUNREACH) => {
            "no path to the peer: on InfiniBand, is a subnet manager running (`sminfo`)?".into()
        }
        ("rdma_connect", libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => NO_ANSWER.into(),
        ("rdma_connect" | "rdma_accept", libc::EINVAL) => {
            "refused by the kernel or the driver: private data too long for the peer, or a queue pair that is not in INIT".into()
        }
        ("rdma_init_qp_attr", libc::EINVAL) => "the peer has gone meanwhile".into(),
        ("ibv_modify_qp", libc::EINVAL) => "refused by the driver: give a fresh queue pair, in state RESET".into(),
        _ => return None,
    })
}

/// Remedy for an `AF_IB` address that no device has.
pub(crate) const NO_IB: &str =
    "only InfiniBand ports have addresses of the family AF_IB: on RoCE and iWARP use IP addresses";

/// The kernel's internal `ENOTSUPP`, which it returns for IPv6 groups on RoCE v2. Not defined by
/// libc.
const ENOTSUPP: i32 = 524;

/// Remedy for a request without an answer.
pub(crate) const NO_ANSWER: &str = "is the peer's program running, and do firewalls let the traffic through (UDP port 4791 for RoCE, the TCP \
     port itself for iWARP)?";

/// Returns the remedy if no RDMA device has the address. It lists the devices and points out a
/// conflict with RDS.
fn no_device() -> Cow<'static, str> {
    let names: Vec<_> = Device::list()
        .unwrap_or_default()
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    if names.is_empty() {
        return "this host has no RDMA device: load its driver, or add one with `rdma link add rxe0 type rxe netdev NETDEV`".into();
    }
    let mut text = format!(
        "no RDMA device has that address; here are {}: use an address of the network interface that `rdma link` shows for one",
        names.join(", ")
    );
    if rds_listens() {
        text.push_str("; the kernel's RDS listens on TCP port 16385, which keeps rdma_cm off Soft-iWARP: unload rds_tcp and rds_rdma");
    }
    text.into()
}

/// Returns `true` if a socket listens on the TCP port of RDS.
fn rds_listens() -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .iter()
        .filter_map(|table| fs::read_to_string(table).ok())
        .any(|table| table.lines().any(is_rds_listener))
}

/// Returns `true` if a line of `/proc/net/tcp` is a listener (state 0A) on port 16385 (0x4001).
fn is_rds_listener(line: &str) -> bool {
    let mut columns = line.split_ascii_whitespace().skip(1);
    let port = columns.next().and_then(|local| local.rsplit(':').next());
    port == Some("4001") && columns.nth(1) == Some("0A")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_listener_of_rds_is_told_from_others() {
        let zero = "00000000000000000000000000000000";
        let line = |port, state| {
            format!(
                "   0: {zero}:{port} {zero}:0000 {state} 00000000:00000000 00:00000000 00000000     0"
            )
        };
        assert!(is_rds_listener(&line("4001", "0A")));
        assert!(!is_rds_listener(&line("4001", "01")));
        assert!(!is_rds_listener(&line("4D35", "0A")));
        assert!(!is_rds_listener(
            "  sl  local_address rem_address   st tx_queue rx_queue"
        ));
    }

    #[test]
    fn usual_causes_have_a_remedy() {
        for (verb, errno) in [
            ("rdma_create_event_channel", libc::ENOENT),
            ("rdma_create_event_channel", libc::EMFILE),
            ("rdma_listen", libc::EADDRINUSE),
            ("rdma_bind_addr", libc::EADDRNOTAVAIL),
            ("rdma_resolve_addr", libc::ETIMEDOUT),
            ("rdma_connect", libc::ETIMEDOUT),
        ] {
            assert!(hint_for(verb, Errno(errno)).is_some(), "{verb} {errno}");
        }
    }
}
