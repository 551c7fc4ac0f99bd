//! Fork support requested before a device is opened. The test needs no device.

use ibverbs::fork::{self, ForkStatus};

#[test]
fn fork_init_before_open_succeeds_repeatedly() {
    let before = fork::status();
    assert!(before.name().is_some(), "{before}");
    fork::init().expect("first call");
    fork::init().expect("second call");
    let expected = if before == ForkStatus::UNNEEDED {
        ForkStatus::UNNEEDED
    } else {
        ForkStatus::ENABLED
    };
    assert_eq!(fork::status(), expected);
    assert!(fork::is_initialized());
}
