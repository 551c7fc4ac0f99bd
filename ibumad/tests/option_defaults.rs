//! The defaults that the documentation of option structs states.

use ibumad::mad::{MgmtClass, Oui};
use ibumad::{Address, AgentOptions, Gid, GlobalRoute, Lid, Methods, RetryPolicy};
use test_support::named_value;
use test_support::option_defaults::assert_documented;

#[test]
fn defaults_of_agents_are_documented() {
    let source = include_str!("../src/agent.rs");
    let client = AgentOptions::client(MgmtClass::SUBN_ADM, 2);
    let named = [named_value!(Methods::NONE), named_value!(Oui([0; 3]))];
    assert_documented(
        source,
        "AgentOptions",
        &client,
        &["class", "version"],
        &named,
    );
    assert_documented(source, "RetryPolicy", &RetryPolicy::default(), &[], &[]);
}

#[test]
fn defaults_of_addresses_are_documented() {
    let source = include_str!("../src/address.rs");
    let address = Address::lid(Lid(7));
    assert_documented(source, "Address", &address, &["lid", "qpn", "qkey"], &[]);
    let route = GlobalRoute::new(Gid::default(), 1);
    assert_documented(source, "GlobalRoute", &route, &["gid", "gid_index"], &[]);
    assert_eq!(
        Address::gid(Gid::default(), 1),
        Address::lid(Lid(0)).route(route)
    );
}
