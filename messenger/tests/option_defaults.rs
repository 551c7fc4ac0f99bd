//! The defaults that the documentation of option structs states.

use std::time::Duration;

use ibverbs::AccessFlags;
use messenger::{GroupOptions, MessengerOptions};
use rdmacm::ConnectParams;
use test_support::named_value;
use test_support::option_defaults::assert_documented;

#[test]
fn defaults_of_messengers_are_documented() {
    let source = include_str!("../src/options.rs");
    let named = [
        named_value!(AccessFlags::empty()),
        named_value!(Duration::from_micros(500)),
        ("ConnectParams::new", format!("{:?}", ConnectParams::new())),
    ];
    let options = MessengerOptions::default();
    assert_documented(source, "MessengerOptions", &options, &[], &named);

    let source = include_str!("../src/group.rs");
    assert_documented(source, "GroupOptions", &GroupOptions::new(), &[], &[]);
}
