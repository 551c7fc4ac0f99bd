//! The walk on fake devices.

use std::time::Duration;

use fake_provider::{AfterDestroy, Fake, Profile, Provider};
use ibverbs::{AccessFlags, Device, GidIndex, Mtu, RcPath};
use walk::{Options, Setup, Support, run};

/// The ways in which fake devices behave, by the names that `WALK_MODE` takes. By default, each
/// epoch has another one.
const MODES: [(&str, Profile); 6] = [
    ("rxe", Profile::RXE),
    (
        "classic",
        Profile {
            extended_qp: false,
            extended_cq: false,
            negative_errno: true,
            ..Profile::RXE
        },
    ),
    // Completes READs after later requests, and still reads memory then.
    (
        "siw",
        Profile {
            // Under Miri, the provider takes new pages for those that were unmapped before.
            transmits_read_responses_late: !cfg!(miri),
            ..Profile::SIW
        },
    ),
    // Finds the requests of completions by the numbers of queue pairs, which it uses again at once.
    (
        "numbers",
        Profile {
            provider: Provider::Efa,
            ..FINDS_BY_NUMBER
        },
    ),
    // Follows the addresses of destroyed queue pairs.
    (
        "poison",
        Profile {
            provider: Provider::Qedr,
            ..POISONS
        },
    ),
    // Writes to the memory of failed requests. Failed requests also keep the windows that they
    // bind, which the model does not know.
    (
        "late-writes",
        Profile {
            provider: Provider::Ocrdma,
            windows: false,
            ..WRITES_LATE
        },
    ),
];

#[test]
fn a_walk_on_fake_devices_finds_no_violation() {
    let options = Options::from_env(if cfg!(miri) { 300 } else { 6000 });
    let mode = std::env::var("WALK_MODE").unwrap_or_default();
    let mut modes = MODES.to_vec();
    modes.retain(|(name, _)| mode.is_empty() || *name == mode);
    let names = MODES.map(|(name, _)| name);
    assert!(
        !modes.is_empty(),
        "WALK_MODE: {mode:?}; available: {names:?}"
    );
    let open = |epoch: usize| open(modes[epoch % modes.len()].1);
    run(options, true, open).check();
}

const FINDS_BY_NUMBER: Profile = Profile {
    after_destroy: AfterDestroy::FindByNumber,
    ..Profile::RXE
};

const POISONS: Profile = Profile {
    after_destroy: AfterDestroy::Poison,
    ..Profile::RXE
};

const WRITES_LATE: Profile = Profile {
    writes_after_failures: true,
    ..Profile::RXE
};

/// Devices that break a property of their provider: this library then breaks its promises.
const BROKEN: [Profile; 3] = [FINDS_BY_NUMBER, POISONS, WRITES_LATE];

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

/// Opens a fake device. A violation of the rules of the verbs API panics when it is dropped.
fn open(profile: Profile) -> (Setup, Fake) {
    let provider = profile.provider;
    let is_siw = provider == Provider::Siw;
    let follows_ibta = !is_siw && provider != Provider::Efa;
    let fake = Fake::new(profile);
    let device = Device::by_name(fake.name()).expect("listed device");
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let context = device.open().expect("open device");
    let mut support = Support::of(&context).expect("supported operations");
    if provider == Provider::Efa {
        support = support.without_empty_receives();
    }
    let operations = [
        (true, "RC, UC, UD, atomics"),
        (profile.windows, "memory windows"),
        (provider != Provider::Qedr, "shared receive queues"),
        (true, "resizing of completion queues"),
        (provider != Provider::Qedr, "addresses of the device"),
    ];
    let operations = operations
        .iter()
        .filter_map(|&(has, name)| has.then_some(name));
    if follows_ibta {
        let operations: Vec<_> = operations.collect();
        assert_eq!(support.to_string(), operations.join(", "));
    }
    let setup = Setup {
        support,
        context,
        address: None,
        path: Some(RcPath::new(1, GidIndex(0), Mtu::B1024).access(access)),
        in_order: follows_ibta,
        loses_no_datagrams: true,
        sends_wait: !is_siw,
        keeps_failed: provider == Provider::Ocrdma,
        leaks_busy: provider == Provider::Qedr,
        timeout: Duration::from_millis(if cfg!(miri) { 20_000 } else { 200 }),
        buf_sizes: if cfg!(miri) {
            &[16, 64]
        } else {
            &[16, 64, 256, 8192]
        },
    };
    (setup, fake)
}
