//! Fork support before any device is open; needs none.

use ibverbs::fork::{self, ForkStatus};

#[test]
fn fork_support_can_be_switched_on_before_a_device_is_opened_and_again() {
    let before = fork::status();
    assert!(before.name().is_some(), "{before}");
    fork::init().expect("first");
    fork::init().expect("again");
    let expected = if before == ForkStatus::UNNEEDED {
        ForkStatus::UNNEEDED
    } else {
        ForkStatus::ENABLED
    };
    assert_eq!(fork::status(), expected);
    assert!(fork::is_initialized());
}
