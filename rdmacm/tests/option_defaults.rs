//! The defaults that the documentation of option structs states.

use ibverbs::Gid;
use rdmacm::address::{IbAddr, LookupOptions};
use rdmacm::{ConnectParams, PortSpace};
use test_support::named_value;
use test_support::option_defaults::assert_documented;

#[test]
fn defaults_of_connections_are_documented() {
    let source = include_str!("../src/params/mod.rs");
    assert_documented(source, "ConnectParams", &ConnectParams::default(), &[], &[]);
}

#[test]
fn defaults_of_addresses_are_documented() {
    let source = include_str!("../src/address/lookup.rs");
    let named = [named_value!(PortSpace::TCP)];
    assert_documented(
        source,
        "LookupOptions",
        &LookupOptions::default(),
        &[],
        &named,
    );

    let source = include_str!("../src/address/ib.rs");
    let address = IbAddr::new(Gid::default(), PortSpace::TCP, 7471);
    let named = [("0xffff", format!("{:?}", 0xffff))];
    assert_documented(source, "IbAddr", &address, &["gid", "service_id"], &named);
}
