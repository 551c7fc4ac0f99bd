//! The walk on fake devices.

use std::time::Duration;

use fake_provider::{AfterDestroy, Fake, Profile, Provider};
use ibverbs::{AccessFlags, Device, GidIndex, Mtu, RcPath};
use walk::{Options, Setup, Support, run};

#[test]
fn a_walk_on_fake_devices_finds_no_violation() {
    let options = Options::from_env(if cfg!(miri) { 300 } else { 5000 });
    let open = |epoch| open(PROFILES[epoch % PROFILES.len()]);
    run(options, true, open).check();
}

const PROFILES: [Profile; 4] = [
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
    // Finds the requests of completions by the numbers of queue pairs.
    Profile {
        provider: Provider::Efa,
        after_destroy: AfterDestroy::FindByNumber,
        ..Profile::RXE
    },
];

/// Devices that break a property of their provider: this library then breaks its promises.
const BROKEN: [Profile; 3] = [
    Profile {
        after_destroy: AfterDestroy::FindByNumber,
        ..Profile::RXE
    },
    Profile {
        after_destroy: AfterDestroy::Poison,
        ..Profile::RXE
    },
    Profile {
        writes_after_failures: true,
        ..Profile::RXE
    },
];

/// The rules for the providers without the properties could be wrong, and the walk blind.
#[test]
#[cfg_attr(miri, ignore = "the memory of the program is damaged")]
fn a_walk_notices_a_device_that_breaks_a_property() {
    for profile in BROKEN {
        let mut options = Options::from_env(0);
        options.actions = 100_000;
        let report = run(options, false, |_| open(profile));
        let found = report.violation();
        let (violation, actions) = found.unwrap_or_else(|| panic!("not noticed: {profile:?}"));
        println!("noticed after {actions} actions: {violation}");
    }
}

/// The operations of the devices with the InfiniBand transport.
const OPERATIONS: &str = "RC, UC, UD, atomics, memory windows, shared receive queues, resizing of \
    completion queues";

/// Opens a fake device. A violation of the rules of the verbs API panics when it is dropped.
fn open(profile: Profile) -> (Setup, Fake) {
    let is_efa = profile.provider == Provider::Efa;
    let is_siw = profile.provider == Provider::Siw;
    let follows_ibta = !is_siw && !is_efa;
    let fake = Fake::new(profile);
    let device = Device::by_name(fake.name()).expect("listed device");
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let context = device.open().expect("open device");
    let mut support = Support::of(&context).expect("supported operations");
    if is_efa {
        support = support.without_empty_receives();
    }
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
        sends_wait: !is_siw,
        timeout: Duration::from_millis(if cfg!(miri) { 20_000 } else { 200 }),
        buf_sizes: if cfg!(miri) {
            &[16, 64]
        } else {
            &[16, 64, 256, 8192]
        },
    };
    (setup, fake)
}
