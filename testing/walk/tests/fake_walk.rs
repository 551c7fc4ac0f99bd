//! The walk on fake devices.

use std::time::Duration;

use fake_provider::{Fake, Profile};
use ibverbs::{AccessFlags, Device, GidIndex, Mtu, RcPath};
use walk::{Options, Setup, Support, run};

#[test]
fn a_walk_on_fake_devices_finds_no_violation() {
    let options = Options::from_env(if cfg!(miri) { 300 } else { 5000 });
    let open = |epoch| open(PROFILES[epoch % PROFILES.len()]);
    run(options, true, open).check();
}

const PROFILES: [Profile; 3] = [
    Profile::RXE,
    Profile {
        extended_qp: false,
        extended_cq: false,
        negative_errno: true,
        ..Profile::RXE
    },
    // Completes READs after later requests, and still reads memory then.
    Profile {
        // Under Miri, the provider takes new pages for those that were unmapped before.
        transmits_read_responses_late: !cfg!(miri),
        ..Profile::SIW
    },
];

/// The operations of the devices with the InfiniBand transport.
const OPERATIONS: &str = "RC, UC, UD, atomics, memory windows, shared receive queues, resizing of \
    completion queues";

/// Opens a fake device. A violation of the rules of the verbs API panics when it is dropped.
fn open(profile: Profile) -> (Setup, Fake) {
    let follows_ibta = profile.send_order == Profile::RXE.send_order;
    let fake = Fake::new(profile);
    let device = Device::by_name(fake.name()).expect("listed device");
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let context = device.open().expect("open device");
    let support = Support::of(&context).expect("supported operations");
    if follows_ibta {
        assert_eq!(support.to_string(), OPERATIONS);
    }
    let setup = Setup {
        support,
        context,
        address: None,
        path: Some(RcPath::new(1, GidIndex(0), Mtu::B1024).access(access)),
        in_order: follows_ibta,
        loses_no_datagrams: true,
        sends_wait: follows_ibta,
        timeout: Duration::from_millis(if cfg!(miri) { 20_000 } else { 200 }),
        buf_sizes: if cfg!(miri) {
            &[16, 64]
        } else {
            &[16, 64, 256, 8192]
        },
    };
    (setup, fake)
}
