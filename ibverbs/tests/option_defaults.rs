//! The defaults that the documentation of option structs states.

use ibverbs::flow::{EthFilter, FlowRule, FlowType, Ipv4Filter, Ipv6Filter, PortFilter};
use ibverbs::mr::Backing;
use ibverbs::qp::{AlternatePath, OptionalOps, QpChange};
use ibverbs::{
    AccessFlags, AhAttr, CqOptions, Gid, GidQuery, GlobalRoute, Lid, MemoryOptions, Mtu, Psn,
    QpOptions, QpState, RcPath, SrqOptions,
};
use test_support::named_value;
use test_support::option_defaults::assert_documented;

#[test]
fn defaults_of_queues_are_documented() {
    let source = include_str!("../src/cq/options.rs");
    assert_documented(source, "CqOptions", &CqOptions::default(), &[], &[]);
    let source = include_str!("../src/qp/options.rs");
    let named = [named_value!(OptionalOps::empty())];
    assert_documented(source, "QpOptions", &QpOptions::default(), &[], &named);
    let source = include_str!("../src/srq/options.rs");
    assert_documented(source, "SrqOptions", &SrqOptions::default(), &[], &[]);
}

#[test]
fn defaults_of_memory_are_documented() {
    let source = include_str!("../src/mr/options.rs");
    let named = [named_value!(Backing::Heap)];
    for options in [MemoryOptions::default(), MemoryOptions::new()] {
        assert_documented(source, "MemoryOptions", &options, &[], &named);
    }
}

#[test]
fn defaults_of_paths_are_documented() {
    let source = include_str!("../src/qp/attr.rs");
    let path = RcPath::new(1, None, Mtu::B1024);
    let required = ["port_num", "sgid_index", "mtu"];
    let named = [named_value!(AccessFlags::empty()), named_value!(Psn(0))];
    assert_documented(source, "RcPath", &path, &required, &named);

    let source = include_str!("../src/ah.rs");
    let attr = AhAttr::for_lid(1, Lid(7));
    assert_documented(source, "AhAttr", &attr, &["port_num", "dlid"], &[]);
    let route = GlobalRoute::new(Gid::default(), 1);
    assert_documented(source, "GlobalRoute", &route, &["dgid", "sgid_index"], &[]);
    assert_eq!(
        AhAttr::for_gid(1, 1, Gid::default()),
        AhAttr::for_lid(1, Lid(0)).grh(route)
    );

    let source = include_str!("../src/qp/alternate.rs");
    let alternate = AlternatePath::new(attr);
    assert_documented(source, "AlternatePath", &alternate, &["address"], &[]);
}

#[test]
fn defaults_of_queries_and_rules_are_documented() {
    let source = include_str!("../src/gid/query.rs");
    assert_documented(source, "GidQuery", &GidQuery::default(), &[], &[]);
    assert_eq!(GidQuery::new(), GidQuery::default());

    let source = include_str!("../src/flow/rule.rs");
    let named = [named_value!(FlowType::NORMAL)];
    let required = ["port_num", "specs"];
    assert_documented(source, "FlowRule", &FlowRule::new(1, []), &required, &named);
    assert_eq!(EthFilter::new(), EthFilter::default());
    assert_eq!(PortFilter::new(), PortFilter::default());
    let (v4, v6) = (Ipv4Filter::default(), Ipv6Filter::default());
    assert!([v4.src, v4.dst].iter().all(|ip| ip.to_bits() == 0));
    assert!([v6.src, v6.dst].iter().all(|ip| ip.to_bits() == 0));
}

#[test]
fn a_new_change_changes_nothing() {
    assert_eq!(QpChange::new(), QpChange::default());
    let mut change = QpChange::to(QpState::RTS);
    assert_eq!(change.state.take(), Some(QpState::RTS));
    assert_eq!(change, QpChange::new());
}

#[test]
fn options_can_be_constants() {
    const OPTIONS: QpOptions = QpOptions::new().max_send_wr(128).max_inline_data(64);
    const CHANGE: QpChange = QpChange::to(QpState::SQD).notify_when_drained(true);
    let mut expected = QpOptions::default();
    expected.max_send_wr = 128;
    expected.max_inline_data = 64;
    assert_eq!(OPTIONS, expected);
    assert_eq!(CHANGE.notify_when_drained, Some(true));
}
