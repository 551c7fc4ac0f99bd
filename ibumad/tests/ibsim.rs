//! The crate on a simulated InfiniBand fabric, compared with the tools of infiniband-diags.

use std::process::Command;
use std::time::{Duration, Instant};

use ibumad::mad::{DirectedRoute, SmState};
use ibumad::{
    AgentOptions, Ca, ErrorKind, Gid, Lid, LinkWidth, PhysState, Port, PortState, RetryPolicy,
    Target, leaked_objects,
};
use test_support::fabric::{Fabric, field, is_inside};
use test_support::process;

/// Runs a test on the host `Hca1` of a new fabric.
fn on_fabric(test: &str, inside: impl Fn(&Port)) {
    if is_inside() {
        let port = Port::open("ibsim0", 1).expect("the simulated port");
        inside(&port);
        drop(port);
        assert_eq!(leaked_objects(), 0);
    } else {
        Fabric::start().run_test("Hca1", test);
    }
}

/// Returns the output of a tool of infiniband-diags.
fn tool(program: &str, args: &[&str]) -> String {
    process::run(Command::new(program).args(args))
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("`{text}` is not a number"))
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn ports_match_ibstat() {
    on_fabric("ports_match_ibstat", |port| {
        let output = tool("ibstat", &[]);
        assert_eq!(Ca::names().expect("names"), ["ibsim0"]);
        let ca = Ca::by_name("ibsim0").expect("the adapter");
        let attr = port.attr().expect("the port");
        assert_eq!(ca.ports.len(), 1);
        assert_eq!(
            format!("{:#018x}", ca.node_guid),
            field(&output, "Node GUID:")
        );
        assert_eq!(ca.ca_type, field(&output, "CA type:"));
        assert_eq!(
            format!("{:#018x}", attr.port_guid),
            field(&output, "Port GUID:")
        );
        assert_eq!(attr.base_lid.to_string(), field(&output, "Base lid:"));
        assert_eq!(attr.sm_lid.to_string(), field(&output, "SM lid:"));
        assert_eq!(
            u64::from(attr.cap_mask),
            number(&field(&output, "Capability mask:"))
        );
        assert_eq!(attr.rate.to_string(), field(&output, "Rate:"));
        assert_eq!(attr.state, PortState::ACTIVE);
        assert_eq!(attr.phys_state, PhysState::LINK_UP);
        assert!(attr.link_layer.is_infiniband());
        assert_eq!(ca.default_port(), Some(&attr));
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn subnet_manager_matches_sminfo() {
    on_fabric("subnet_manager_matches_sminfo", |port| {
        let output = tool("sminfo", &[]);
        let word = |key: &str| {
            let rest = output
                .split(key)
                .nth(1)
                .unwrap_or_else(|| panic!("no `{key}` in {output}"));
            rest.split([' ', ',']).next().unwrap_or_default().to_owned()
        };
        let attr = port.attr().expect("the port");
        assert_eq!(attr.sm_lid.to_string(), word("sm lid "));
        let smi = port.subnet_management().expect("subnet management");
        let info = smi
            .sm_info(&Target::Lid(attr.sm_lid))
            .expect("a subnet manager");
        assert_eq!(info.guid().0, number(&word("sm guid ")));
        assert_eq!(u64::from(info.priority()), number(&word("priority ")));
        assert_eq!(u64::from(info.state().0), number(&word("state ")));
        assert_eq!(info.state(), SmState::MASTER);
        assert!(u64::from(info.act_count()) >= number(&word("activity count ")));
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn nodes_and_ports_match_smpquery() {
    on_fabric("nodes_and_ports_match_smpquery", |port| {
        let attr = port.attr().expect("the port");
        let smi = port.subnet_management().expect("subnet management");
        let (lid, target) = (attr.sm_lid.to_string(), Target::Lid(attr.sm_lid));

        let output = tool("smpquery", &["portinfo", &lid]);
        let info = smi.port_info(&target, 0).expect("a response");
        let fields = [
            ("GidPrefix:", info.gid_prefix()),
            ("Lid:", info.lid().0.into()),
            ("SMLid:", info.sm_lid().0.into()),
            ("CapMask:", info.cap_mask().into()),
            ("DiagCode:", info.diag_code().into()),
            ("MkeyLeasePeriod:", info.m_key_lease_period().into()),
            ("LocalPort:", info.local_port().into()),
            ("ProtectBits:", info.m_key_protect_bits().into()),
            ("LMC:", info.lmc().into()),
            (
                "NeighborMTU:",
                info.neighbor_mtu().bytes().expect("known").into(),
            ),
            ("MtuCap:", info.mtu_cap().bytes().expect("known").into()),
            ("SMSL:", info.sm_sl().into()),
            ("InitType:", info.init_type().into()),
            ("VLHighLimit:", info.vl_high_limit().into()),
            ("VLArbHighCap:", info.vl_arb_high_cap().into()),
            ("VLArbLowCap:", info.vl_arb_low_cap().into()),
            ("VLStallCount:", info.vl_stall_count().into()),
            ("HoqLife:", info.hoq_life().into()),
            (
                "PartEnforceInb:",
                info.partition_enforcement_inbound().into(),
            ),
            ("FilterRawOutb:", info.filter_raw_outbound().into()),
            ("MkeyViolations:", info.m_key_violations().into()),
            ("QkeyViolations:", info.q_key_violations().into()),
            ("GuidCap:", info.guid_cap().into()),
            ("SubnetTimeout:", info.subnet_timeout().into()),
            ("RespTimeVal:", info.resp_time().into()),
            ("LocalPhysErr:", info.local_phy_errors().into()),
            ("OverrunErr:", info.overrun_errors().into()),
            ("MaxCreditHint:", info.max_credit_hint().into()),
            ("RoundTrip:", info.link_round_trip_latency().into()),
            ("CapabilityMask2:", info.cap_mask2().into()),
            (
                "LinkSpeedExtSupported:",
                info.link_speed_ext_supported().0.into(),
            ),
        ];
        for (key, value) in fields {
            assert_eq!(value, number(&field(&output, key)), "{key}");
        }
        let texts = [
            ("LinkState:", info.state().to_string()),
            ("PhysLinkState:", info.phys_state().to_string()),
            ("LinkWidthActive:", info.link_width_active().to_string()),
            ("LinkSpeedActive:", info.link_speed_active().to_string()),
            (
                "LinkSpeedExtActive:",
                info.link_speed_ext_active().to_string(),
            ),
        ];
        for (key, value) in texts {
            // smpquery does not write the state in capitals, as the kernel does.
            let is_same = value.eq_ignore_ascii_case(&field(&output, key));
            assert!(is_same, "{key} {value}, {output}");
        }
        assert!(info.is_sm(), "opensm runs there");
        assert_eq!(info.link_width_active(), LinkWidth::X4);

        let output = tool("smpquery", &["nodeinfo", &lid]);
        let node = smi.node_info(&target).expect("a response");
        assert_eq!(
            format!("{:#018x}", node.node_guid()),
            field(&output, "Guid:")
        );
        assert_eq!(
            format!("{:#018x}", node.system_guid()),
            field(&output, "SystemGuid:")
        );
        assert_eq!(
            format!("{:#018x}", node.port_guid()),
            field(&output, "PortGuid:")
        );
        assert_eq!(node.node_type().to_string(), field(&output, "NodeType:"));
        for (key, value) in [
            ("BaseVers:", u64::from(node.base_version())),
            ("ClassVers:", node.class_version().into()),
            ("NumPorts:", node.num_ports().into()),
            ("PartCap:", node.partition_cap().into()),
            ("DevId:", node.device_id().into()),
            ("Revision:", node.revision().into()),
            ("LocalPort:", node.local_port().into()),
            ("VendorId:", node.vendor_id().into()),
        ] {
            assert_eq!(value, number(&field(&output, key)), "{key}");
        }
        let output = tool("smpquery", &["nodedesc", &lid]);
        assert_eq!(
            smi.node_description(&target).expect("a response").text(),
            field(&output, "Node Description:")
        );
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn directed_route_reaches_each_hop() {
    on_fabric("directed_route_reaches_each_hop", |port| {
        let smi = port.subnet_management().expect("subnet management");
        let name = |ports: &[u8]| {
            let route = Target::Directed(DirectedRoute::new(ports).expect("short"));
            smi.node_description(&route).expect("a response").text()
        };
        assert_eq!(name(&[]), "Hca1");
        assert_eq!(name(&[1]), "Switch1");
        assert_eq!(name(&[1, 3]), "Hca3");
        let own = smi.port_info(&Target::local(), 0).expect("a response");
        assert_eq!(own.lid(), port.attr().expect("the port").base_lid);
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn subnet_administration_returns_paths() {
    on_fabric("subnet_administration_returns_paths", |port| {
        let attr = port.attr().expect("the port");
        let sa = port.subnet_administration(None).expect("a subnet manager");
        let smi = port.subnet_management().expect("subnet management");
        let peer = smi
            .port_info(
                &Target::Directed(DirectedRoute::new(&[1, 2]).expect("short")),
                0,
            )
            .expect("a response");
        let node = smi.node_info(&Target::Lid(peer.lid())).expect("a response");
        let path = sa.path_to_guid(node.port_guid()).expect("a path");
        assert_eq!((path.slid(), path.dlid()), (attr.base_lid, peer.lid()));
        assert_eq!(
            (path.sgid(), path.dgid()),
            (
                attr.gid(),
                Gid::from_parts(attr.gid_prefix, node.port_guid())
            )
        );
        assert_eq!(path.pkey() & 0x7fff, 0x7fff);
        assert!(path.reversible());
        let error = sa
            .path_to_guid("0x9999".parse().expect("a GUID"))
            .expect_err("unknown GUID");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn unanswered_request_times_out() {
    on_fabric("unanswered_request_times_out", |port| {
        let retry = RetryPolicy::new()
            .timeout(Duration::from_millis(100))
            .tries(2);
        let smi = port
            .subnet_management()
            .expect("subnet management")
            .with_retry(retry);
        let start = Instant::now();
        let error = smi
            .node_info(&Target::Lid(Lid(0x777)))
            .expect_err("no such node");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // The simulator reports an undeliverable packet immediately; a kernel waits for the whole
        // timeout.
        assert!(
            start.elapsed() < 10 * retry.timeout * retry.tries,
            "{:?}",
            start.elapsed()
        );
        assert_eq!(
            smi.node_info(&Target::Lid(Lid(0)))
                .expect_err("LID 0")
                .kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn dropped_agents_and_ports_free_their_resources() {
    on_fabric("dropped_agents_and_ports_free_their_resources", |port| {
        // The simulator supports 32 agents and 8 open ports.
        for _ in 0..100 {
            let agent = port
                .register(AgentOptions::openib_ping())
                .expect("free resources");
            drop(agent);
            drop(Port::open("ibsim0", 1).expect("free resources"));
        }
        assert_eq!(
            Port::open("ibsim0", 2)
                .expect_err("the adapter has one port")
                .kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            Port::open("mlx4_0", 1).map(drop).expect_err("none").call(),
            "umad_get_ca"
        );
    });
}
