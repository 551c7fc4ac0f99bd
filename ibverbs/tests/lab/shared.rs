//! What the device tests of this crate and those of `rdmacm` share.

use std::sync::Mutex;

use ibverbs::{Context, Device, device::TransportType};

/// The devices to test on; a run without one is a failed run.
pub(crate) fn devices() -> Vec<Context> {
    let names = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices to test on: run by ci/lab");
    let all: Vec<Context> = names
        .split_whitespace()
        .map(|name| Device::by_name(name).expect(name).open().expect(name))
        .collect();
    assert!(!all.is_empty(), "RDMA_LAB_DEVICES names no device");
    all
}

pub(crate) fn is_iwarp(context: &Context) -> bool {
    context.device().transport() == TransportType::IWARP
}

/// As `mem::forget`: it is never dropped. A sanitizer that looks for leaks knows of it.
pub(crate) fn forget<T>(what: T) {
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    KEPT.lock()
        .expect("not poisoned")
        .push(Box::into_raw(Box::new(what)).expose_provenance());
}
