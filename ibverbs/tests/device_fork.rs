//! Fork support after a device was opened.

mod lab;

use ibverbs::ErrorKind;
use ibverbs::fork::{self, ForkStatus};
use lab::devices;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn fork_init_fails_after_open_if_needed() {
    for context in devices() {
        println!("device: {}", context.device_name());
        println!("fork support: {}", fork::status());
        if fork::status() == ForkStatus::DISABLED {
            let error = fork::init().expect_err("a device is open");
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
