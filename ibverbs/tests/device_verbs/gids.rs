//! GID tables, the choice of an entry, and the default RoCE version.

use std::net::IpAddr;
use std::path::Path;

use ibverbs::{
    ErrorKind, Gid, GidIndex, GidQuery,
    gid::{GidType, IpFamily, RoceConfig},
};

use crate::lab::{
    devices, devices_with, is_efa, is_infiniband, is_iwarp, is_mlx5, is_model, roce_with, verb,
};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn gid_table_has_kind_and_interface() {
    for context in devices_with(&[verb::ETHERNET]) {
        // The MAC address of iWARP, and the address of EFA.
        let single = is_iwarp(&context) || is_efa(&context);
        let gids = context.gids(1).expect("GID table");
        for entry in &gids {
            println!("{}: {entry}", context.device_name());
            assert_eq!(context.gid(1, entry.index).expect("one entry"), *entry);
            let kinds: &[GidType] = if single {
                &[GidType::IB]
            } else if is_mlx5(&context) {
                &[GidType::ROCE_V1, GidType::ROCE_V2]
            } else {
                &[GidType::ROCE_V2]
            };
            assert!(kinds.contains(&entry.kind), "{entry}");
        }
        if single {
            assert_eq!(gids.len(), 1);
            assert_eq!(
                context.gid(1, GidIndex(1)).expect_err("beyond").kind(),
                ErrorKind::InvalidInput
            );
        } else {
            let netdev = context.netdev(1).expect("interface");
            assert!(
                gids.iter()
                    .all(|entry| entry.netdev().as_ref() == Some(&netdev))
            );
            assert!(gids.iter().any(|entry| entry.gid.is_link_local()));
            let v4 = gids
                .iter()
                .find(|entry| entry.gid.to_ip().is_some_and(|ip| ip.is_ipv4()))
                .expect("an IPv4 address");
            // The loopback interface has 127.0.0.1/8.
            let prefix_len = if netdev == "lo" { 8 } else { 24 };
            assert_eq!(v4.prefix_len(), Some(prefix_len));
            let len = context.query_port(1).expect("port").gid_tbl_len;
            let last = GidIndex(u8::try_from(len - 1).unwrap_or(u8::MAX));
            assert_eq!(
                context.gid(1, last).expect_err("empty").kind(),
                ErrorKind::NotFound
            );
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn selects_gid_in_the_peers_subnet() {
    for context in roce_with(&[verb::RC, verb::ETHERNET]) {
        let mut own = context.gids(1).expect("GID table");
        own.retain(|entry| entry.kind == GidType::ROCE_V2);
        let v4 = own
            .iter()
            .find(|e| e.gid.to_ip().is_some_and(|ip| ip.is_ipv4()))
            .expect("IPv4");
        let v6 = own
            .iter()
            .find(|e| e.gid.to_ip().is_some_and(|ip| ip.is_ipv6()) && !e.gid.is_link_local());
        let local = own
            .iter()
            .find(|e| e.gid.is_link_local())
            .expect("link-local");
        let mut neighbour = v4.gid;
        neighbour.0[15] ^= 0x70;
        let choice = context
            .select_gid(1, &GidQuery::for_peer(neighbour))
            .expect("IPv4");
        println!("{}: {choice}", context.device_name());
        assert_eq!(choice.entry, *v4);
        assert!(
            choice.reason.starts_with("in the peer's subnet"),
            "{choice}"
        );
        if let Some(v6) = v6 {
            let mut neighbour = v6.gid;
            neighbour.0[15] ^= 0x70;
            assert_eq!(
                context
                    .select_gid(1, &GidQuery::for_peer(neighbour))
                    .expect("IPv6")
                    .entry,
                *v6
            );
        }
        let choice = context
            .select_gid(1, &GidQuery::for_peer(ip("fe80::77")))
            .expect("link-local");
        assert_eq!(choice.entry, *local);
        let query = GidQuery::new().family(IpFamily::V4).ifindex(v4.ifindex);
        assert_eq!(context.select_gid(1, &query).expect("no peer").entry, *v4);
        let query = GidQuery::for_peer(v4.gid).source(v4.gid);
        assert!(
            context
                .select_gid(1, &query)
                .expect("endpoint")
                .reason
                .contains("both ends")
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn error_has_a_reason_for_each_rejected_gid() {
    for context in roce_with(&[verb::RC, verb::ETHERNET]) {
        let absent = if is_mlx5(&context) {
            GidType::IB
        } else {
            GidType::ROCE_V1
        };
        let query = GidQuery::new().kind(absent);
        let error = context
            .select_gid(1, &query)
            .expect_err("no GID of this kind");
        println!("{error}");
        assert_eq!(error.kind(), ErrorKind::NotFound);
        for entry in context.gids(1).expect("GID table") {
            assert!(
                error
                    .to_string()
                    .contains(&format!("{entry} is not {absent}")),
                "{error}"
            );
        }
        assert!(
            error
                .help()
                .is_some_and(|help| help.contains("another RoCE version"))
        );
        let query = GidQuery::new().source(Gid::from(ip("192.0.2.7")));
        assert_eq!(
            context
                .select_gid(1, &query)
                .expect_err("not an address of this device")
                .kind(),
            ErrorKind::NotFound
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn select_gid_is_unsupported_on_iwarp() {
    let devices = test_support::lab::devices();
    if devices.iter().all(is_model) {
        test_support::lab::report_no_device("the models of adapters have no iWARP");
    }
    for context in devices.into_iter().filter(is_iwarp) {
        println!("device: {}", context.device_name());
        let error = context
            .select_gid(1, &GidQuery::default())
            .expect_err("iWARP has no GIDs to choose from");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn default_roce_mode_is_read_and_set() {
    for context in devices() {
        let name = context.device_name();
        if is_efa(&context) || is_infiniband(&context) {
            println!("unsupported: {name} RoCE");
            return;
        }
        println!("device: {name}");
        let directory = Path::new("/sys/kernel/config/rdma_cm").join(name);
        if is_mlx5(&context) && !Path::new("/sys/kernel/config/rdma_cm").exists() {
            // The model of the adapter needs no kernel module.
            let error = context.default_roce_mode(1).expect_err("no rdma_cm");
            assert!(error.help().is_some(), "{error}");
            return;
        }
        let was_there = directory.exists();
        let mode = context.default_roce_mode(1).expect("read");
        println!("{name}: {mode}");
        if is_iwarp(&context) {
            assert_eq!(
                mode,
                GidType::ROCE_V1,
                "the kernel's value, meaningless on iWARP"
            );
            let error = context
                .set_default_roce_mode(1, GidType::ROCE_V2)
                .expect_err("iWARP is not RoCE");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        } else {
            assert_eq!(mode, GidType::ROCE_V2);
            context
                .set_default_roce_mode(1, GidType::ROCE_V2)
                .expect("set");
            let error = context
                .set_default_roce_mode(1, GidType::ROCE_V1)
                .expect_err("Soft-RoCE does not support RoCE v1");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(
                error.to_string().contains("does not support RoCE v1"),
                "{error}"
            );
            assert_eq!(
                context.default_roce_mode(1).expect("read"),
                GidType::ROCE_V2
            );
        }
        assert_eq!(
            context.default_roce_mode(2).expect_err("one port").kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            directory.exists(),
            was_there,
            "a directory that was created must be removed"
        );
    }
    let error = RoceConfig::system()
        .default_mode("none0", 1)
        .expect_err("no such device");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
}
