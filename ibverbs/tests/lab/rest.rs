//! The kernel's own count of RDMA objects, to see that a test left none behind.

use std::collections::BTreeMap;
use std::process::Command;

/// Counts when it is made, and again when it is dropped: declare it first.
pub(crate) struct Rest(BTreeMap<String, String>);

impl Rest {
    pub(crate) fn now() -> Self {
        Self(objects())
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(
                objects(),
                self.0,
                "the kernel's objects by device, after and before"
            );
            assert_eq!(ibverbs::leaked_objects(), 0);
        }
    }
}

/// Of each device `rdma resource show` says, for example, "pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq
/// 0".
fn objects() -> BTreeMap<String, String> {
    let output = Command::new("rdma")
        .args(["resource", "show"])
        .output()
        .expect("the rdma tool");
    let text = String::from_utf8(output.stdout).expect("text");
    let all: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| {
            let (_, line) = line.split_once(": ")?;
            let (device, counts) = line.split_once(": ")?;
            Some((device.to_owned(), counts.trim().to_owned()))
        })
        .collect();
    assert!(
        !all.is_empty(),
        "rdma resource show names no device: {text}"
    );
    all
}
