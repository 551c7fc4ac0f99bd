//! Remedies for common failures, by function and errno.

use std::borrow::Cow;
use std::fs;

use ibverbs::{Device, Errno, LinkLayer};

/// Returns the remedy for a common cause of `errno` from `verb`.
pub(crate) fn help_for(verb: &str, errno: Errno) -> Option<Cow<'static, str>> {
    Some(match (verb, errno.0) {
        ("rdma_create_event_channel", libc::EACCES | libc::EPERM) => {
            "check the permissions of /dev/infiniband/rdma_cm".into()
        }
        ("rdma_create_event_channel", libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOSYS) => {
            "check that /dev/infiniband/rdma_cm exists; the kernel module rdma_ucm creates it".into()
        }
        (_, libc::EMFILE | libc::ENFILE) => {
            "raise the limit of open files with `ulimit -n`; each connection needs one descriptor".into()
        }
        ("rdma_bind_addr" | "rdma_resolve_addr", libc::ENODEV) => no_device(),
        ("rdma_resolve_addr", libc::EADDRINUSE) => {
            "the source port is in use; choose another one, use 0 for any, or set `reuse_address` on both".into()
        }
        ("rdma_join_multicast", ENOTSUPP) => "Linux has no IPv6 groups on RoCE v2; use an IPv4 group".into(),
        ("rdma_bind_addr" | "rdma_listen", libc::EADDRINUSE) => {
            "choose another port; `rdma resource show cm_id` and `ss -tln` show the current listeners".into()
        }
        ("rdma_bind_addr", libc::EADDRNOTAVAIL) => "use an address of this host, as listed by `ip address`".into(),
        ("rdma_bind_addr" | "rdma_listen", libc::EACCES | libc::EPERM) => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE".into()
        }
        // librdmacm opens the device.
        ("rdma_resolve_addr", libc::EACCES | libc::EPERM) => {
            "check the permissions of /dev/infiniband/uverbs*".into()
        }
        ("rdma_resolve_addr", libc::ENETUNREACH) => {
            "check the route with `ip route get ADDRESS`".into()
        }
        ("rdma_resolve_addr", libc::EADDRNOTAVAIL) => {
            "use a source address of this host, of the same family as the peer's address".into()
        }
        ("rdma_resolve_addr", libc::ETIMEDOUT | libc::EHOSTUNREACH) => {
            "check that the peer is up, in the same subnet, and that its cable is connected".into()
        }
        ("rdma_resolve_route", libc::ETIMEDOUT | libc::EHOSTUNREACH) => {
            "on InfiniBand, check with `sminfo` that a subnet manager is running".into()
        }
        ("rdma_connect", libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => NO_ANSWER.into(),
        ("rdma_connect", libc::EADDRINUSE) => {
            "a TCP socket of this host has the selected source port; connect again, which selects another".into()
        }
        ("rdma_connect" | "rdma_accept", libc::EINVAL) => {
            "check that the private data fits and that the queue pair is in INIT".into()
        }
        ("rdma_init_qp_attr", libc::EINVAL) => "the peer has probably disconnected".into(),
        ("rdma_resolve_addrinfo", libc::ENOSYS) => {
            "install rdma-core 60 or newer, or use `address::lookup`".into()
        }
        ("ibv_modify_qp", libc::EINVAL) => "use a new queue pair, in state RESET".into(),
        _ => return None,
    })
}

/// Remedy for an `AF_IB` address that no device has.
pub(crate) const NO_IB: &str =
    "only InfiniBand ports have AF_IB addresses; use IP addresses on RoCE and iWARP";

/// The kernel's internal `ENOTSUPP`, which it returns for IPv6 groups on RoCE v2. Not defined by
/// libc.
const ENOTSUPP: i32 = 524;

/// Remedy for a request without an answer on InfiniBand and RoCE.
pub(crate) const NO_ANSWER: &str = "check that the peer's application is running and that firewalls allow UDP port 4791 if the network is RoCE";

/// Remedy for a request that a reachable iWARP host has not answered.
const NO_ACCEPT: &str = "the peer's host is reachable, but its application has not accepted the request: it must do so within a few seconds (10 s on Soft-iWARP), so register memory before listening";

/// Returns the remedy for a connect request without an answer. `link_layer` is that of the local
/// port, and `is_reached` is `true` if the peer has accepted the TCP connection of iWARP.
pub(crate) fn no_answer(
    is_iwarp: bool,
    is_reached: bool,
    link_layer: Option<LinkLayer>,
    port: u16,
) -> Cow<'static, str> {
    if is_iwarp && is_reached {
        return NO_ACCEPT.into();
    }
    let application = "check that the peer's application is running and accepts requests within a few seconds (it should register memory before listening)";
    match link_layer {
        _ if is_iwarp => format!(
            "check that the peer's host is running and that firewalls allow TCP port {port}"
        )
        .into(),
        Some(LinkLayer::ETHERNET) => {
            format!("{application}, and that firewalls allow UDP port 4791").into()
        }
        _ => application.into(),
    }
}

/// Returns the remedy if no RDMA device has the address. It lists the devices and points out a
/// conflict with RDS.
fn no_device() -> Cow<'static, str> {
    let names: Vec<_> = Device::list()
        .unwrap_or_default()
        .iter()
        .map(|device| device.name().to_owned())
        .collect();
    if names.is_empty() {
        return "this host has no RDMA device; load its driver, or add one with `rdma link add rxe0 type rxe netdev NETDEV`".into();
    }
    let mut text = format!(
        "use an address of the network interface that `rdma link` shows for a device; available: {}",
        names.join(", ")
    );
    if rds_listens() {
        text.push_str("; unload the kernel modules rds_tcp and rds_rdma, because their listener on TCP port 16385 keeps rdma_cm from using Soft-iWARP");
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
    fn only_the_rds_listener_is_recognized() {
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
    fn a_missing_answer_names_only_what_the_path_uses() {
        let ethernet = Some(LinkLayer::ETHERNET);
        let help = no_answer(true, false, ethernet, 7471);
        assert!(
            help.contains("TCP port 7471") && !help.contains("UDP"),
            "{help}"
        );
        let help = no_answer(true, true, ethernet, 7471);
        assert!(
            help.contains("before listening") && !help.contains("firewall"),
            "{help}"
        );
        let help = no_answer(false, false, ethernet, 7471);
        assert!(
            help.contains("before listening") && help.contains("UDP port 4791"),
            "{help}"
        );
        assert!(!help.contains("TCP"), "{help}");
        for link_layer in [Some(LinkLayer::INFINIBAND), None] {
            let help = no_answer(false, false, link_layer, 7471);
            assert!(!help.contains("firewall"), "{help}");
        }
    }

    #[test]
    fn common_failures_have_a_remedy() {
        for (verb, errno) in [
            ("rdma_create_event_channel", libc::ENOENT),
            ("rdma_create_event_channel", libc::EMFILE),
            ("rdma_listen", libc::EADDRINUSE),
            ("rdma_bind_addr", libc::EADDRNOTAVAIL),
            ("rdma_resolve_addr", libc::ETIMEDOUT),
            ("rdma_connect", libc::ETIMEDOUT),
            ("rdma_connect", libc::EADDRINUSE),
        ] {
            assert!(help_for(verb, Errno(errno)).is_some(), "{verb} {errno}");
        }
    }
}
