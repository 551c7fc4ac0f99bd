//! `ribping` against `ibping` on a simulated InfiniBand fabric.

use std::mem::ManuallyDrop;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ibumad::mad::{Mad, MgmtClass, OPENIB_OUI, VendorMad};
use ibumad::{Address, Agent, AgentOptions, Lid, Methods, Port};
use serde_json::Value;
use test_support::fabric::{Fabric, is_inside};
use test_support::process::{self, Process};
use test_support::text::assert_contains;

const RIBPING: &str = env!("CARGO_BIN_EXE_ribping");

/// Starts a `ribping` server on `Hca4` with these additional options.
fn ribping_server(fabric: &Fabric, options: &[&str]) -> Process {
    fabric.serve(
        "Hca4",
        RIBPING,
        &[&["-S", "-v"], options].concat(),
        "answering management datagrams",
    )
}

fn ribping(fabric: &Fabric) -> Command {
    fabric.command("Hca1", RIBPING)
}

/// Returns the exit code and the JSON report of `ribping`.
fn report(fabric: &Fabric, args: &[&str]) -> (Option<i32>, Value) {
    let output = process::output(ribping(fabric).arg("--json").args(args));
    let report =
        serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.code(), report)
}

/// Returns the lines of the output with each number replaced by 0, so that outputs with different
/// times can be compared. Omits the line with percentiles, which `ibping` does not print.
fn without_numbers(output: &str) -> Vec<String> {
    output
        .lines()
        .filter(|line| !line.starts_with("rtt p50"))
        .map(|line| {
            let mut shape = String::new();
            for c in line.chars() {
                let c = if c.is_ascii_digit() { '0' } else { c };
                if !(c == '0' && shape.ends_with('0')) {
                    shape.push(c);
                }
            }
            shape
        })
        .collect()
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn ribping_pings_ibping_and_prints_the_same_format() {
    let fabric = Fabric::start();
    let _server = fabric.serve_ibping();
    let lid = fabric.lid("Hca2").to_string();
    for target in [
        vec!["-L", &lid],
        vec![&lid],
        vec!["-G", &fabric.guid("Hca2")],
    ] {
        let ours = process::run(
            ribping(&fabric)
                .args(["-c", "3", "-i", "0.05"])
                .args(&target),
        );
        let mut ibping = fabric.command("Hca1", "ibping");
        let theirs = process::run(ibping.args(["-c", "3"]).args(&target));
        assert_eq!(
            without_numbers(&ours),
            without_numbers(&theirs),
            "{ours}{theirs}"
        );
        assert!(ours.contains(&format!("(Lid {lid})")), "{ours}");
        assert_contains(
            &ours,
            &["3 packets transmitted, 3 received, 0% packet loss"],
        );
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn ibping_pings_ribping_by_lid_and_by_guid() {
    let fabric = Fabric::start();
    let mut server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    for target in [["-L", &lid], ["-G", &fabric.guid("Hca4")]] {
        let mut ibping = fabric.command("Hca1", "ibping");
        let text = process::run(ibping.args(["-c", "2"]).args(target));
        assert_contains(
            &text,
            &["2 packets transmitted, 2 received, 0% packet loss"],
        );
        let host = nix::unistd::gethostname()
            .expect("a host name")
            .to_string_lossy()
            .into_owned();
        assert!(text.contains(&format!("Pong from {host}")), "{text}");
    }
    assert!(server.is_running());
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn thousand_flood_pings_lose_nothing() {
    let fabric = Fabric::start();
    let _ibping = fabric.serve_ibping();
    let _ribping = ribping_server(&fabric, &[]);
    for host in ["Hca2", "Hca4"] {
        let lid = fabric.lid(host).to_string();
        let (code, report) = report(&fabric, &["-f", "-c", "1000", &lid]);
        assert_eq!(code, Some(0));
        assert_eq!(
            (&report["transmitted"], &report["received"], &report["lost"]),
            (&1000.into(), &1000.into(), &0.into())
        );
        assert_eq!(
            (&report["duplicates"], &report["late"]),
            (&0.into(), &0.into())
        );
        let mut ibping = fabric.command("Hca1", "ibping");
        let text = process::run(ibping.args(["-f", "-c", "1000", &lid]));
        assert_contains(
            &text,
            &["1000 packets transmitted, 1000 received, 0% packet loss"],
        );
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn lost_packets_are_counted_and_retries_recover_them() {
    let mut fabric = Fabric::start();
    let _ibping = fabric.serve_ibping();
    let _ribping = ribping_server(&fabric, &[]);
    for host in ["Hca2", "Hca4"] {
        let lid = fabric.lid(host).to_string();
        fabric.set_loss(host, 50);
        let (code, counts) = report(&fabric, &["-f", "-c", "200", "-t", "50", &lid]);
        assert_eq!(code, Some(0), "some pings are answered");
        let lost = counts["lost"].as_u64().expect("a number");
        assert!(
            (40..180).contains(&lost),
            "half of the packets are dropped: {counts}"
        );
        assert_eq!(
            counts["transmitted"].as_u64(),
            counts["received"].as_u64().map(|received| received + lost)
        );
        assert_eq!(counts["rtt_ns"]["samples"], counts["received"]);
        let (_, counts) = report(
            &fabric,
            &["-f", "-c", "100", "-t", "50", "--tries", "60", &lid],
        );
        assert_eq!(counts["lost"], 0, "{counts}");
        assert!(counts["resent"].as_u64() > Some(20), "{counts}");
        // ibping also counts lost packets. It tries three times and fails at the first packet that
        // the simulator reports as lost.
        let mut ibping = fabric.command("Hca1", "ibping");
        let text = process::output(ibping.args(["-f", "-c", "200", "-t", "50", &lid])).stdout;
        assert!(
            text.contains("200 packets transmitted") && !text.contains(" 0% packet loss"),
            "{text}"
        );
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn round_trip_times_add_up_to_the_run_time_of_a_flood() {
    let fabric = Fabric::start();
    let _server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    let (_, report) = report(&fabric, &["-f", "-c", "2000", &lid]);
    let round_trips = report["rtt_ns"]["mean"].as_f64().expect("a number") * 2000.0;
    let total = report["time_ns"].as_f64().expect("a number");
    assert!(
        round_trips > 0.5 * total && round_trips <= 1.01 * total,
        "{report}"
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn exit_codes_are_those_of_ping() {
    let fabric = Fabric::start();
    let code = |args: &[&str]| process::output(ribping(&fabric).args(args)).code();
    let lid = fabric.lid("Hca4").to_string();
    let short = |args: &[&str]| {
        let options = ["-c", "2", "-i", "0.01", "-t", "50"];
        code(&[&options, args].concat())
    };
    assert_eq!(short(&[&lid]), Some(1), "no server");
    let (_, silent) = report(&fabric, &["-c", "1", "-t", "50", &lid]);
    assert!(
        silent["note"]
            .as_str()
            .is_some_and(|note| note.contains("is reachable, but no `ribping -S` answers there")),
        "{silent}"
    );
    let (_, absent) = report(&fabric, &["-c", "1", "-t", "50", "99"]);
    assert_eq!(absent["note"], Value::Null, "{absent}");
    assert_eq!(short(&["-G", "0x9999"]), Some(2), "no path");
    assert_eq!(short(&["-C", "mlx4_0", &lid]), Some(2), "no such adapter");
    assert_eq!(short(&["-P", "2", &lid]), Some(2), "no such port");
    assert_eq!(
        short(&["--size", "64", &lid]),
        Some(2),
        "a datagram has 256 bytes"
    );
    assert_eq!(code(&[]), Some(2), "no target");
    let _server = ribping_server(&fabric, &[]);
    let (sm, guid) = (fabric.lid("Hca3").to_string(), fabric.guid("Hca4"));
    assert_eq!(
        short(&["-C", "ibsim0", "-P", "1", "-s", &sm, "-G", &guid]),
        Some(0)
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn client_and_server_can_use_another_oui() {
    let fabric = Fabric::start();
    let _server = ribping_server(&fabric, &["-o", "0x1406"]);
    let lid = fabric.lid("Hca4").to_string();
    let (code, report) = report(&fabric, &["-c", "2", "-i", "0.01", "-o", "0x1406", &lid]);
    assert_eq!((code, &report["received"]), (Some(0), &2.into()));
}

/// Returns a ping with pseudo-random bytes after the first part of the header.
fn noise(seed: u32) -> Mad {
    let mut mad = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
    let mut state = u64::from(seed) << 32 | 0x9e37_79b9;
    // Bytes 0 to 2 and the transaction ID stay: the simulator crashes on a response without a
    // request.
    for (at, byte) in mad
        .as_bytes_mut()
        .iter_mut()
        .enumerate()
        .filter(|(at, _)| matches!(at, 3..8 | 16..))
    {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *byte = state.to_be_bytes()[at % 3];
    }
    mad
}

/// Registers the ping class at the port of the host that this process runs on.
fn agent(methods: Methods) -> Agent {
    let port = Port::open("ibsim0", 1).expect("the simulated port");
    port.register(AgentOptions::openib_ping().methods(methods))
        .expect("an agent for the ping class")
}

const MALFORMED_READY: &str = "answering with malformed responses";

/// Answers one ping in eight correctly and the others with seven kinds of malformed responses.
fn serve_malformed_responses() {
    let agent = agent(Methods::ALL);
    println!("{MALFORMED_READY}");
    let mut turn = 0;
    loop {
        let Some(ping) = agent.recv(None).expect("a port") else {
            continue;
        };
        let to = ping.from.reply();
        let Some(vendor) = VendorMad::from_mad(&ping.mad) else {
            continue;
        };
        turn += 1;
        let mut answer = vendor.response(b"node\0");
        let bytes = answer.as_bytes_mut();
        match turn % 8 {
            // A host name of control characters without a terminator.
            0 => bytes[40..].fill(0x1b),
            // A duplicate.
            1 => agent.send_without_response(&answer, &to).expect("sent"),
            // Another status, vendor, transaction, method, and all of these.
            2 => bytes[5] = 0x1c,
            3 => bytes[38] ^= 0xff,
            4 => bytes[15] ^= 0x80,
            5 => bytes[3] = 0x01,
            6 => bytes[24..].copy_from_slice(&noise(turn).as_bytes()[24..]),
            _ => continue,
        }
        agent.send_without_response(&answer, &to).expect("sent");
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn malformed_responses_are_counted_by_kind() {
    if is_inside() {
        return serve_malformed_responses();
    }
    let fabric = Fabric::start();
    let _server = fabric.serve_test(
        "Hca4",
        "malformed_responses_are_counted_by_kind",
        MALFORMED_READY,
    );
    let lid = fabric.lid("Hca4").to_string();
    let mut command = ribping(&fabric);
    command.args(["-c", "16", "-i", "0.01", "-t", "200", "-e", &lid]);
    let output = process::output(&mut command);
    assert_eq!(output.code(), Some(0), "{output:?}");
    let text = output.stdout;
    assert!(!text.contains('\x1b'), "{text:?}");
    assert!(
        text.contains("16 packets transmitted") && !text.contains("16 received"),
        "{text}"
    );
    assert!(
        text.contains("Pong from node (Lid") && !text.contains("\n0 duplicates"),
        "{text}"
    );
    for error in [
        "duplicate reply",
        "invalid value in a field",
        "no reply before the timeout",
        "reply to an unknown ping",
    ] {
        assert!(output.stderr.contains(error), "{error}: {}", output.stderr);
    }
}

/// Sends malformed pings to a LID.
fn send_malformed_pings(lid: Lid) {
    // The library of the simulator fails if a late response finds no agent.
    let agent = ManuallyDrop::new(agent(Methods::NONE));
    for seed in 0..300 {
        agent
            .send_without_response(&noise(seed), &Address::lid(lid))
            .expect("sent");
        // The simulator queues responses until they are received.
        let _ = agent.recv(Some(Duration::from_millis(20))).expect("a port");
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn malformed_pings_do_not_stop_the_server() {
    const TEST: &str = "malformed_pings_do_not_stop_the_server";
    const LID: &str = "MALFORMED_PINGS_TO";
    if is_inside() {
        let lid = std::env::var(LID).expect("a LID");
        return send_malformed_pings(lid.parse().expect("a LID"));
    }
    let fabric = Fabric::start();
    let mut server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    fabric.run_test_with("Hca1", TEST, &[(LID, &lid)]);
    let (code, report) = report(&fabric, &["-c", "3", "-i", "0.01", &lid]);
    assert_eq!(
        (code, &report["received"]),
        (Some(0), &3.into()),
        "{report}"
    );
    assert!(server.is_running());
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn interrupted_client_prints_its_summary() {
    let fabric = Fabric::start();
    let server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    let mut command = ribping(&fabric);
    let client = Process::spawn(command.args(["-i", "0.1", &lid]).stdin(Stdio::null()));
    thread::sleep(Duration::from_secs(1));
    client.interrupt();
    let output = client.wait();
    assert_eq!(output.code(), Some(0), "{output}");
    assert!(
        output.stdout.contains("ibping statistics ---")
            && !output.stdout.contains(" 100% packet loss"),
        "{output}"
    );

    server.interrupt();
    let output = server.wait_timeout(Duration::from_secs(5));
    assert!(output.status.is_some(), "the server exits too: {output}");
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn lost_pings_are_named_with_a_reason() {
    let fabric = Fabric::start();
    let lid = fabric.lid("Hca3").to_string();
    let output = process::output(ribping(&fabric).args(["-c", "2", "-t", "200", "-L", &lid]));
    for seq in 0..2 {
        let lost = format!("ping {seq} is lost: no reply before the timeout");
        assert!(output.stderr.contains(&lost), "{output}");
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn port_without_subnet_manager_is_named() {
    let fabric = Fabric::without_sm();
    let output = process::output(ribping(&fabric).args(["-c", "1", "-t", "200", "-L", "5"]));
    assert!(
        output
            .stderr
            .contains("no subnet manager has configured it"),
        "{output}"
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn devices_are_listed_for_an_unknown_one() {
    let fabric = Fabric::start();
    let output = process::output(ribping(&fabric).args(["-C", "mlx9", "-L", "5"]));
    assert!(output.stderr.contains("available: "), "{output}");
}
