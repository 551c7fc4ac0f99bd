//! The host with the kernel's target (nvmet-rdma), beside the kernel's own host (nvme-rdma).

mod kernel;

use std::net::SocketAddr;
use std::time::Duration;

use kernel::{KernelHost, Target};
use nvme_host::controller::{Controller, KEEP_ALIVE_TIMEOUT};
use nvme_host::queue::Queue;
use nvme_host::wire::Command;
use sha2::{Digest, Sha256};
use test_support::lab::{device_names, ip_addresses, is_iwarp, netdev, reported_device_names};
use test_support::process::{self, Finished, Process};

/// Size of the namespace in MiB: 64, or `NVME_MIB`.
fn mib() -> u64 {
    let variable = std::env::var("NVME_MIB").ok();
    variable.map_or(64, |text| text.parse().expect("NVME_MIB: a number of MiB"))
}

/// Returns each device with an address of its interface, and the port of NVMe over Fabrics. Returns
/// none if the kernel has no NVMe.
fn devices() -> Vec<(String, SocketAddr)> {
    let with_address = |device: String| {
        let ip = ip_addresses(&netdev(&device))[0];
        (device, SocketAddr::new(ip, 4420))
    };
    if !kernel::has_nvme() {
        for device in device_names() {
            println!("unsupported: {device} nvmet-rdma");
        }
        return Vec::new();
    }
    reported_device_names()
        .into_iter()
        .map(with_address)
        .collect()
}

fn start(target: &Target, command: &str, arguments: &str) -> Process {
    let program = env!("CARGO_BIN_EXE_nvme-host");
    let (address, nqn) = (target.address(), target.nqn());
    let line = format!("{program} {command} {address} {nqn} {arguments}");
    Process::spawn(&mut process::command(&line))
}

/// Runs the program until it exits, and prints its output for the case that the test fails.
fn run(target: &Target, command: &str, arguments: &str) -> Finished {
    let finished = start(target, command, arguments).wait();
    println!("{command} {arguments}: {finished:?}");
    finished
}

/// Returns the digest that the program printed.
fn digest(finished: &Finished) -> String {
    assert!(finished.success(), "{finished:?}");
    let line = finished.stdout.lines().find(|line| line.len() == 64);
    line.unwrap_or_else(|| panic!("no digest: {finished:?}"))
        .to_owned()
}

fn sha256_of(device: &str) -> String {
    process::run_line(&format!("sha256sum {device}"))[..64].to_owned()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn both_hosts_read_the_same_bytes() {
    let mib = mib();
    for (device, address) in devices() {
        let target = Target::new(address, mib);
        let identified = run(&target, "identify", "");
        assert!(identified.success(), "{identified:?}");
        for line in [
            format!("namespace 1: {} blocks of 4096 bytes", mib * 256),
            format!(
                "{device}: 2 I/O queues, 32 commands in flight on each, 131072 bytes per command"
            ),
            "shut down".into(),
        ] {
            assert!(
                identified.stdout.lines().any(|other| other == line),
                "{line}: {identified:?}"
            );
        }
        assert!(identified.stdout.contains("Linux"), "{identified:?}");

        let written = run(&target, "write", &format!("{mib} 7"));
        let read = run(&target, "read", &mib.to_string());
        assert_eq!(digest(&read), digest(&written), "{device}");
        // The controller invalidates the key of each command of 128 KiB, if the device has windows.
        // The data of Connect is in the capsule.
        let keys = if is_iwarp(&device) { 0 } else { mib * 8 };
        for finished in [&written, &read] {
            let expected = format!("keys invalidated by the controller: {keys};");
            assert!(
                finished.stdout.contains(&expected),
                "{expected} {finished:?}"
            );
        }

        let kernel = KernelHost::connect(&target);
        assert_eq!(
            sha256_of(kernel.block_device()),
            digest(&written),
            "{device}"
        );
        let random = format!(
            "dd if=/dev/urandom of={} bs=1M count={mib} oflag=direct",
            kernel.block_device()
        );
        process::run_line(&random);
        let expected = sha256_of(kernel.block_device());
        assert_ne!(expected, digest(&written), "{device}");
        assert_eq!(
            digest(&run(&target, "read", &mib.to_string())),
            expected,
            "{device}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn data_in_capsules_arrives() {
    const LEN: usize = 4096;
    for (device, address) in devices() {
        let target = Target::new(address, 1);
        let mut controller = Controller::connect(&target.subsystem()).expect("controller");
        let nsid = controller.namespace.nsid;
        assert!(controller.data.max_capsule_data >= LEN, "{device}");
        let (mut written, queue) = (Vec::new(), &mut controller.io[0]);
        for lba in 0..256_u16 {
            let byte = |index: usize| (index % 251).to_le_bytes()[0] ^ lba.to_le_bytes()[0];
            let block: Vec<u8> = (0..LEN).map(byte).collect();
            let command = Command::write(nsid, lba.into(), 1, LEN);
            queue.execute(command, &block).expect("write");
            written.extend(block);
        }
        assert_eq!(queue.invalidated(), 0, "{device}: a write used a key");
        let (_, last) = queue
            .execute(Command::read(nsid, 255, 1, LEN), &[])
            .expect("read");
        assert_eq!(last, written[255 * LEN..], "{device}");
        controller.shut_down().expect("shutdown");
        let expected = Sha256::digest(&written);
        let hex: Vec<String> = expected.iter().map(|byte| format!("{byte:02x}")).collect();
        let kernel = KernelHost::connect(&target);
        assert_eq!(sha256_of(kernel.block_device()), hex.concat(), "{device}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_host_without_io_is_kept_alive() {
    // Without traffic, the target ends the connection after one to two timeouts.
    let seconds = (KEEP_ALIVE_TIMEOUT * 2).as_secs() + 2;
    let targets: Vec<Target> = devices()
        .into_iter()
        .map(|(_, address)| Target::new(address, 1))
        .collect();
    let hosts: Vec<Process> = targets
        .iter()
        .map(|target| start(target, "idle", &seconds.to_string()))
        .collect();
    for host in hosts {
        let finished = host.wait();
        assert!(finished.success(), "{finished:?}");
        assert_eq!(finished.stdout, format!("alive after {seconds} s\n"));
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_transfer_continues_after_the_target_was_killed() {
    const ATTEMPTS: u64 = 20;
    let mib = mib();
    for (device, address) in devices() {
        let target = Target::new(address, mib);
        // A transfer on a fast machine can end before the target is killed.
        let interrupted = (0..ATTEMPTS).find_map(|seed| {
            let host = start(&target, "write", &format!("{mib} {seed}"));
            host.next_stdout_line("connected");
            target.stop();
            std::thread::sleep(Duration::from_millis(100));
            target.start();
            let finished = host.wait();
            println!("{finished:?}");
            let digest = digest(&finished);
            (!finished.stdout.contains("repeated commands: 0")).then_some((digest, finished))
        });
        let (written, finished) =
            interrupted.unwrap_or_else(|| panic!("{device}: no transfer was interrupted"));
        for text in ["the connection to the target was lost", "reconnected after"] {
            assert!(finished.stderr.contains(text), "{text}: {finished:?}");
        }
        assert_eq!(
            digest(&run(&target, "read", &mib.to_string())),
            written,
            "{device}"
        );
        let kernel = KernelHost::connect(&target);
        assert_eq!(sha256_of(kernel.block_device()), written, "{device}");
    }
}

/// Returns the requests per second and the mean latency in microseconds that a line names.
fn figures(line: &str) -> (f64, f64) {
    let words: Vec<&str> = line
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .collect();
    let before = |unit: &str| {
        let unit = words.iter().position(|word| *word == unit);
        unit.and_then(|unit| words[unit - 1].parse().ok())
    };
    let figures = before("IOPS").zip(before("us"));
    figures.unwrap_or_else(|| panic!("no figures: {line}"))
}

/// Measures both hosts one after the other in each round, because other work on the machine changes
/// the figures of both.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn figures_are_printed_beside_those_of_the_kernel() {
    let variable = |name, default: &str| std::env::var(name).unwrap_or_else(|_| default.into());
    let seconds = variable("NVME_SECONDS", "1");
    let rounds = variable("NVME_ROUNDS", "1");
    let rounds: u32 = rounds.parse().expect("NVME_ROUNDS: a number of rounds");
    for (device, address) in devices() {
        let target = Target::new(address, mib());
        let kernel = KernelHost::connect(&target);
        let mut ratios = [Vec::new(), Vec::new()];
        for _ in 0..rounds {
            let ours = run(&target, "bench", &seconds);
            assert!(ours.success(), "{ours:?}");
            for (kind, ratios) in ["read", "write"].into_iter().zip(&mut ratios) {
                let line = ours.stdout.lines().find(|line| line.starts_with(kind));
                let (ours, our_latency) = figures(line.expect("a line for each kind"));
                let (theirs, their_latency) = kernel.measure(kind, &seconds);
                println!(
                    "{device} {kind}: nvme-host {ours:.0} IOPS, {our_latency:.0} us; \
                     kernel {theirs:.0} IOPS, {their_latency:.0} us; ratio {:.2}",
                    ours / theirs
                );
                assert!(ours >= 1.0 && our_latency >= 1.0 && theirs >= 1.0 && their_latency >= 1.0);
                ratios.push(ours / theirs);
            }
        }
        for (kind, mut ratios) in ["read", "write"].into_iter().zip(ratios) {
            ratios.sort_by(f64::total_cmp);
            let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
            let median = ratios[ratios.len() / 2];
            println!("{device} {kind}: median ratio {median:.2} ({least:.2} to {most:.2})");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_rejection_has_the_reason_of_the_target() {
    for (device, address) in devices() {
        let target = Target::new(address, 1);
        // An admin queue has at most 32 entries.
        let error = Queue::connect(target.address(), 0, 40, 4096, None);
        let error = error.expect_err("too many entries").to_string();
        assert_eq!(
            error, "the target rejected queue 0: invalid HSQSIZE",
            "{device}"
        );
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn wrong_names_and_a_missing_target_are_reported() {
    for (_, address) in devices() {
        let mut target = Target::new(address, 1);
        let nqn = target.nqn().to_owned();
        target.set_nqn("nqn.2014-08.org.example:none");
        let finished = run(&target, "identify", "");
        assert!(
            finished
                .stderr
                .contains("the controller returned Connect Invalid Parameters"),
            "{finished:?}"
        );
        target.set_nqn(&nqn);
        target.stop();
        let finished = run(&target, "identify", "");
        assert!(
            finished.stderr.contains("nothing listens on that port"),
            "{finished:?}"
        );
        target.start();
    }
}
