//! Attributes of devices and ports with both software drivers.

use std::fs;

use ibverbs::{
    Context, Device, ErrorKind, Guid, LinkLayer, Pkey, PortState,
    caps::{
        AtomicCap, DeviceCapFlags, OdpGeneralCaps, OdpTransportCaps, PortCapFlags, RawPacketCaps,
    },
    device::{NodeType, TransportType},
    port::{LinkRate, LinkSpeed, LinkWidth, PhysState},
};

use crate::lab::{devices, is_efa, is_infiniband, is_iwarp, is_mlx5, is_model, kernel_is_at_least};

/// Runs `test` on every device, with `true` for an iWARP device.
fn for_each_device(test: impl Fn(&Context, bool)) {
    for context in devices() {
        println!("device: {}", context.device_name());
        test(&context, is_iwarp(&context));
    }
}

/// Reads a file of the device in sysfs.
fn sysfs(context: &Context, file: &str) -> String {
    let path = format!("/sys/class/infiniband/{}/{file}", context.device_name());
    fs::read_to_string(&path).expect(&path).trim().to_owned()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn device_is_found_by_name_guid_netdev_and_index() {
    for_each_device(|context, iwarp| {
        let device = context.device();
        assert_eq!(
            Device::by_name(device.name()).expect("by name").guid(),
            device.guid()
        );
        assert_eq!(
            Device::by_guid(device.guid()).expect("by GUID").name(),
            device.name()
        );
        assert_eq!(
            sysfs(context, "node_guid").parse::<Guid>().expect("GUID"),
            device.guid()
        );
        // EFA has no network interface of its own.
        if !is_efa(context) {
            let netdev = context.netdev(1).expect("network interface of the port");
            let (found, port_num) = Device::by_netdev(&netdev).expect("by interface");
            assert_eq!((found.name(), port_num), (device.name(), 1));
        }
        if test_support::lab::is_model() {
            // A model of an adapter has no netlink, from which the number comes.
            assert_eq!(device.index(), None);
        } else {
            let index = device.index().expect("the kernel numbers its devices");
            let same = Device::list()
                .expect("list")
                .iter()
                .filter(|other| other.index() == Some(index))
                .count();
            assert_eq!(same, 1);
        }
        let expected = if iwarp {
            (NodeType::RNIC, TransportType::IWARP)
        } else if is_efa(context) {
            (NodeType::UNSPECIFIED, TransportType::UNSPECIFIED)
        } else {
            (NodeType::CA, TransportType::IB)
        };
        let (node, _) = expected;
        assert_eq!((device.node_type(), device.transport()), expected);
        assert!(sysfs(context, "node_type").starts_with(&node.0.to_string()));
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_device_error_lists_available_devices() {
    for_each_device(|context, _| {
        let name = context.device_name();
        let error = Device::by_name("none0").expect_err("no such name");
        assert!(
            error.kind() == ErrorKind::NotFound && error.to_string().contains(name),
            "{error}"
        );
        let error = Device::by_guid(Guid(1)).expect_err("no such GUID");
        assert!(
            error.kind() == ErrorKind::NotFound && error.to_string().contains(name),
            "{error}"
        );
        let error = Device::by_netdev("none0").expect_err("no such interface");
        let listed = error.to_string().contains(name);
        assert!(
            error.kind() == ErrorKind::NotFound && listed != is_efa(context),
            "{error}"
        );
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn extended_query_includes_classic_attributes() {
    for_each_device(|context, iwarp| {
        let classic = context.query_device().expect("classic");
        let all = context.query_device_ex().expect("extended");
        assert_eq!(all.attr, classic);
        assert_eq!(all.phys_port_cnt, u32::from(classic.phys_port_cnt));
        assert_eq!(classic.node_guid, context.device().guid());
        assert_eq!(all.num_comp_vectors, context.num_comp_vectors());
        assert!(all.num_comp_vectors >= 1, "at least one");
        assert!(
            classic.max_qp > 0 && classic.max_cqe > 0 && classic.max_mr > 0 && classic.max_pd > 0
        );
        assert!(classic.page_size_cap & 4096 != 0);
        let reduced = iwarp || is_efa(context);
        let atomics = if reduced {
            AtomicCap::NONE
        } else {
            AtomicCap::HCA
        };
        assert_eq!(classic.atomic_cap, atomics);
        assert_eq!(
            classic
                .device_cap_flags
                .contains(DeviceCapFlags::MEM_MGT_EXTENSIONS),
            !is_efa(context)
        );
        assert_eq!(
            classic
                .device_cap_flags
                .contains(DeviceCapFlags::MEM_WINDOW),
            !reduced
        );
        assert_eq!(classic.max_mw > 0, !reduced);
        if !all.device_cap_flags_ex.is_empty() {
            let low = DeviceCapFlags::from_bits_retain(0xffff_ffff);
            assert_eq!(
                all.device_cap_flags_ex & low,
                classic.device_cap_flags & low
            );
        }
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn on_demand_capabilities_depend_on_the_kernel() {
    for_each_device(|context, iwarp| {
        let odp = context.query_device_ex().expect("extended").odp;
        let supported = !iwarp && !is_model(context) && kernel_is_at_least("7.3");
        assert_eq!(odp.general.contains(OdpGeneralCaps::SUPPORT), supported);
        let receives = OdpTransportCaps::RECV | OdpTransportCaps::SRQ_RECV;
        let ud = OdpTransportCaps::SEND | receives;
        let one_sided = OdpTransportCaps::WRITE | OdpTransportCaps::READ | OdpTransportCaps::ATOMIC;
        let none = OdpTransportCaps::empty();
        let expected = if supported {
            [ud | one_sided, none, ud, none]
        } else {
            [none; 4]
        };
        let granted = [odp.rc, odp.uc, odp.ud, odp.xrc];
        // Drops the bits that the library does not know (FLUSH, ATOMIC_WRITE).
        assert_eq!(
            granted.map(|caps| caps & (ud | one_sided)),
            expected,
            "RC, UC, UD, XRC"
        );
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn unsupported_capabilities_are_zero() {
    for_each_device(|context, _| {
        let all = context.query_device_ex().expect("extended");
        let clock = (all.completion_timestamp_mask, all.hca_core_clock);
        if is_mlx5(context) {
            assert!(clock.0 != 0 && clock.1 != 0 && all.max_dm_size > 0);
        } else {
            assert_eq!((clock, all.max_dm_size), ((0, 0), 0));
        }
        assert_eq!(
            (
                all.tso.max_tso,
                all.packet_pacing.qp_rate_limit_max,
                all.tm.max_num_tags
            ),
            (0, 0, 0)
        );
        assert_eq!(
            (
                all.max_wq_type_rq,
                all.rss.max_rwq_indirection_tables,
                all.cq_mod.max_cq_count
            ),
            (0, 0, 0)
        );
        assert_eq!(all.raw_packet_caps, RawPacketCaps::empty());
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn port_is_active_and_rate_matches_sysfs() {
    for_each_device(|context, iwarp| {
        let port = context.query_port(1).expect("port 1");
        assert_eq!(
            (port.state, port.link_layer),
            (
                PortState::ACTIVE,
                match sysfs(context, "ports/1/link_layer").as_str() {
                    "InfiniBand" => LinkLayer::INFINIBAND,
                    "Ethernet" => LinkLayer::ETHERNET,
                    _ => LinkLayer::UNSPECIFIED,
                }
            )
        );
        assert_eq!(port.phys_state, PhysState::LINK_UP);
        assert_eq!(port.rate().to_string(), sysfs(context, "ports/1/rate"));
        let (width, speed, mbps, signalling) = if is_model(context) {
            (LinkWidth::X4, LinkSpeed::EDR, 100_000, 103_125)
        } else {
            (LinkWidth::X1, LinkSpeed::FDR10, 10_000, 10_312)
        };
        assert_eq!(port.rate(), LinkRate { width, speed });
        assert_eq!(
            (port.rate().mbps(), port.rate().signalling_mbps()),
            (Some(mbps), Some(signalling))
        );
        assert!(port.active_mtu <= port.max_mtu && port.active_mtu.bytes().is_some());
        // Messages of EFA are datagrams.
        let largest = if is_efa(context) { 8928 } else { 1 << 30 };
        assert!(port.max_msg_sz >= largest && port.gid_tbl_len > 0);
        // Only InfiniBand has a subnet manager, which assigns LIDs.
        let has_lids = port.lid.0 != 0 && port.sm_lid.0 != 0;
        assert_eq!(has_lids, is_infiniband(context));
        assert_eq!(
            port.port_cap_flags.contains(PortCapFlags::CM_SUP),
            !is_efa(context)
        );
        println!(
            "{}: iWARP {iwarp}, {}, flags {:?} {:?}",
            context.device_name(),
            port.rate(),
            port.port_cap_flags,
            port.flags
        );
        let error = context.query_port(2).expect_err("one port");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn roce_has_default_pkey_and_iwarp_none() {
    for_each_device(|context, iwarp| {
        if iwarp {
            for error in [
                context.pkeys(1).expect_err("no P_Key table"),
                context.pkey(1, 0).expect_err("no P_Key table"),
            ] {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
            }
            return;
        }
        let keys = context.pkeys(1).expect("P_Keys");
        assert_eq!(
            keys.iter()
                .map(|entry| (entry.index, entry.pkey))
                .collect::<Vec<_>>(),
            [(0, Pkey::DEFAULT)]
        );
        assert!(context.pkey(1, 0).expect("the first").is_full_member());
        let length = context.query_port(1).expect("port 1").pkey_tbl_len;
        let error = context.pkey(1, length + 8).expect_err("beyond the table");
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    });
}
