//! Tests of messengers on devices. `ci/guest/device-tests` runs each module alone.

mod hooks;
#[path = "../../../rdmacm/tests/device_cm/lab/mod.rs"]
mod lab;

mod faults;
mod group;
mod messages;
mod peers;
#[cfg(feature = "tokio")]
mod tokio;
