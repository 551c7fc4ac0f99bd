//! On a simulated InfiniBand fabric, beside the tools of infiniband-diags.

use std::process::Command;
use std::time::{Duration, Instant};

use ibumad::mad::{DirectedRoute, LinkWidth, SmState};
use ibumad::{
    AgentOptions, Ca, ErrorKind, Lid, Patience, PhysState, Port, PortState, Target, leaked_objects,
};
use test_support::fabric::{Fabric, field, is_inside};
use test_support::process;

/// Runs a test on `Hca1` of a fabric of its own.
fn on_a_host(test: &str, inside: impl Fn(&Port)) {
    if is_inside() {
        let port = Port::open("ibsim0", 1).expect("the simulated port");
        inside(&port);
        drop(port);
        assert_eq!(leaked_objects(), 0);
    } else {
        Fabric::start().run_test("Hca1", test);
    }
}

/// What a tool of infiniband-diags prints here.
fn tool(program: &str, args: &[&str]) -> String {
    process::run(Command::new(program).args(args))
}

fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    }
    .unwrap_or_else(|_| panic!("`{text}` is no number"))
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn ports_are_as_ibstat_says() {
    on_a_host("ports_are_as_ibstat_says", |port| {
        let said = tool("ibstat", &[]);
        assert_eq!(Ca::names().expect("names"), ["ibsim0"]);
        let ca = Ca::by_name("ibsim0").expect("it is there");
        let attr = port.attr().expect("it is there");
        assert_eq!(ca.ports.len(), 1);
        assert_eq!(ca.node_guid.to_string(), field(&said, "Node GUID:"));
        assert_eq!(ca.ca_type, field(&said, "CA type:"));
        assert_eq!(attr.port_guid.to_string(), field(&said, "Port GUID:"));
        assert_eq!(attr.base_lid.to_string(), field(&said, "Base lid:"));
        assert_eq!(attr.sm_lid.to_string(), field(&said, "SM lid:"));
        assert_eq!(
            u64::from(attr.cap_mask),
            number(&field(&said, "Capability mask:"))
        );
        assert_eq!(attr.rate.to_string(), field(&said, "Rate:"));
        assert_eq!(attr.state, PortState::ACTIVE);
        assert_eq!(attr.phys_state, PhysState::LINK_UP);
        assert!(attr.link_layer.is_infiniband());
        assert_eq!(ca.best_port(), Some(&attr));
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn the_subnet_manager_is_as_sminfo_says() {
    on_a_host("the_subnet_manager_is_as_sminfo_says", |port| {
        let said = tool("sminfo", &[]);
        let word = |key: &str| {
            let rest = said
                .split(key)
                .nth(1)
                .unwrap_or_else(|| panic!("no `{key}` in {said}"));
            rest.split([' ', ',']).next().unwrap_or_default().to_owned()
        };
        let attr = port.attr().expect("it is there");
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
fn nodes_and_ports_are_as_smpquery_says() {
    on_a_host("nodes_and_ports_are_as_smpquery_says", |port| {
        let attr = port.attr().expect("it is there");
        let smi = port.subnet_management().expect("subnet management");
        let (lid, target) = (attr.sm_lid.to_string(), Target::Lid(attr.sm_lid));

        let said = tool("smpquery", &["portinfo", &lid]);
        let info = smi.port_info(&target, 0).expect("answers");
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
            assert_eq!(value, number(&field(&said, key)), "{key}");
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
            assert_eq!(value, field(&said, key), "{key}");
        }
        assert!(info.is_sm(), "opensm runs there");
        assert_eq!(info.link_width_active(), LinkWidth::X4);

        let said = tool("smpquery", &["nodeinfo", &lid]);
        let node = smi.node_info(&target).expect("answers");
        assert_eq!(node.node_guid().to_string(), field(&said, "Guid:"));
        assert_eq!(node.system_guid().to_string(), field(&said, "SystemGuid:"));
        assert_eq!(node.port_guid().to_string(), field(&said, "PortGuid:"));
        assert_eq!(node.node_type().to_string(), field(&said, "NodeType:"));
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
            assert_eq!(value, number(&field(&said, key)), "{key}");
        }
        let said = tool("smpquery", &["nodedesc", &lid]);
        assert_eq!(
            smi.node_description(&target).expect("answers").text(),
            field(&said, "Node Description:")
        );
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn directed_routes_lead_hop_by_hop() {
    on_a_host("directed_routes_lead_hop_by_hop", |port| {
        let smi = port.subnet_management().expect("subnet management");
        let name = |ports: &[u8]| {
            let route = Target::Directed(DirectedRoute::new(ports).expect("short"));
            smi.node_description(&route).expect("answers").text()
        };
        assert_eq!(name(&[]), "Hca1");
        assert_eq!(name(&[1]), "Switch1");
        assert_eq!(name(&[1, 3]), "Hca3");
        let own = smi.port_info(&Target::local(), 0).expect("answers");
        assert_eq!(own.lid(), port.attr().expect("it is there").base_lid);
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn paths_come_from_subnet_administration() {
    on_a_host("paths_come_from_subnet_administration", |port| {
        let attr = port.attr().expect("it is there");
        let sa = port.subnet_administration(None).expect("a subnet manager");
        let smi = port.subnet_management().expect("subnet management");
        let peer = smi
            .port_info(
                &Target::Directed(DirectedRoute::new(&[1, 2]).expect("short")),
                0,
            )
            .expect("answers");
        let node = smi.node_info(&Target::Lid(peer.lid())).expect("answers");
        let path = sa.path_to_guid(node.port_guid()).expect("a path");
        assert_eq!((path.slid(), path.dlid()), (attr.base_lid, peer.lid()));
        assert_eq!(
            (path.sgid(), path.dgid()),
            (attr.gid(), ibumad::gid(attr.gid_prefix, node.port_guid()))
        );
        assert_eq!(path.pkey() & 0x7fff, 0x7fff);
        assert!(path.reversible());
        let error = sa
            .path_to_guid("0x9999".parse().expect("a GUID"))
            .expect_err("nobody has it");
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn what_nobody_answers_times_out_in_time() {
    on_a_host("what_nobody_answers_times_out_in_time", |port| {
        let patience = Patience {
            timeout: Duration::from_millis(100),
            tries: 2,
        };
        let smi = port
            .subnet_management()
            .expect("subnet management")
            .patience(patience);
        let start = Instant::now();
        let error = smi
            .node_info(&Target::Lid(Lid(0x777)))
            .expect_err("nobody there");
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
        // The simulator reports at once that a packet found no way; a kernel takes the time that it
        // was given.
        assert!(
            start.elapsed() < 10 * patience.timeout * patience.tries,
            "{:?}",
            start.elapsed()
        );
        assert_eq!(
            smi.node_info(&Target::Lid(Lid(0)))
                .expect_err("no LID")
                .kind(),
            ErrorKind::InvalidInput
        );
    });
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn agents_and_ports_are_given_back() {
    on_a_host("agents_and_ports_are_given_back", |port| {
        // The simulator has room for 32 agents and 8 openings.
        for _ in 0..100 {
            let agent = port.register(AgentOptions::openib_ping()).expect("room");
            drop(agent);
            drop(Port::open("ibsim0", 1).expect("room"));
        }
        assert_eq!(
            Port::open("ibsim0", 2).expect_err("one port").kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            Port::open("mlx4_0", 1).map(drop).expect_err("none").call(),
            "umad_get_ca"
        );
    });
}
