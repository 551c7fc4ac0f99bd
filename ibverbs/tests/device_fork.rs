//! Fork support once a device is open.

mod lab;

use ibverbs::ErrorKind;
use ibverbs::fork::{self, ForkStatus};
use lab::devices;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn after_a_device_was_opened_it_is_too_late_unless_nothing_is_needed() {
    for context in devices() {
        println!("device: {}", context.device_name());
        println!("fork support: {}", fork::status());
        if fork::status() == ForkStatus::DISABLED {
            let error = fork::init().expect_err("too late");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(
                error
                    .help()
                    .is_some_and(|hint| hint.contains("RDMAV_FORK_SAFE")),
                "{error}"
            );
            assert!(!fork::is_initialized());
        } else {
            fork::init().expect("nothing to do");
            assert!(fork::is_initialized());
        }
    }
}
