//! ribping beside the real ibping, on a simulated InfiniBand fabric.

#[path = "../../ibumad/tests/fabric/mod.rs"]
mod fabric;

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use fabric::{Fabric, Server, is_inside, run, said_by, text};
use ibumad::mad::{Mad, MgmtClass, OPENIB_OUI, VendorMad};
use ibumad::{Address, Agent, AgentOptions, Lid, Methods, Port};
use serde_json::Value;

const RIBPING: &str = env!("CARGO_BIN_EXE_ribping");

/// ribping as a server, of this OUI where one is given.
fn ribping_server(fabric: &Fabric, oui: &[&str]) -> Server {
    fabric.serve(
        "Hca4",
        RIBPING,
        &[&["-S", "-v"], oui].concat(),
        "answering management datagrams",
    )
}

fn ribping(fabric: &Fabric) -> Command {
    fabric.on("Hca1", RIBPING)
}

/// What ribping counts; whatever its exit status is.
fn counts(fabric: &Fabric, args: &[&str]) -> (Option<i32>, Value) {
    let output = run(ribping(fabric).arg("--json").args(args));
    let value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    (output.status.code(), value)
}

/// The lines of ibping's output, with numbers instead of times.
fn shape(said: &str) -> Vec<String> {
    said.lines()
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
fn ribping_pings_ibping_by_lid_and_by_guid_in_ibpings_words() {
    let fabric = Fabric::start();
    let _server = fabric.ibping_server();
    let lid = fabric.lid("Hca2").to_string();
    for target in [
        vec!["-L", &lid],
        vec![&lid],
        vec!["-G", &fabric.guid("Hca2")],
    ] {
        let ours = said_by(
            ribping(&fabric)
                .args(["-c", "3", "-i", "0.05"])
                .args(&target),
        );
        let theirs = said_by(fabric.on("Hca1", "ibping").args(["-c", "3"]).args(&target));
        assert_eq!(shape(&ours), shape(&theirs), "{ours}{theirs}");
        assert!(ours.contains(&format!("(Lid {lid})")), "{ours}");
        assert!(
            ours.contains("3 packets transmitted, 3 received, 0% packet loss"),
            "{ours}"
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
        let said = said_by(fabric.on("Hca1", "ibping").args(["-c", "2"]).args(target));
        assert!(
            said.contains("2 packets transmitted, 2 received, 0% packet loss"),
            "{said}"
        );
        let host = nix::unistd::gethostname()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        assert!(said.contains(&format!("Pong from {host}")), "{said}");
    }
    assert!(!server.has_ended());
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn of_a_thousand_flood_pings_none_is_lost() {
    let fabric = Fabric::start();
    let _theirs = fabric.ibping_server();
    let _ours = ribping_server(&fabric, &[]);
    for host in ["Hca2", "Hca4"] {
        let lid = fabric.lid(host).to_string();
        let (status, value) = counts(&fabric, &["-f", "-c", "1000", &lid]);
        assert_eq!(status, Some(0));
        assert_eq!(
            (&value["transmitted"], &value["received"], &value["lost"]),
            (&1000.into(), &1000.into(), &0.into())
        );
        assert_eq!(
            (&value["duplicates"], &value["late"]),
            (&0.into(), &0.into())
        );
        let said = said_by(fabric.on("Hca1", "ibping").args(["-f", "-c", "1000", &lid]));
        assert!(
            said.contains("1000 packets transmitted, 1000 received, 0% packet loss"),
            "{said}"
        );
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn lost_packets_are_counted_and_resending_saves_them() {
    let mut fabric = Fabric::start();
    let _theirs = fabric.ibping_server();
    let _ours = ribping_server(&fabric, &[]);
    for host in ["Hca2", "Hca4"] {
        let lid = fabric.lid(host).to_string();
        fabric.lose(host, 50);
        let (status, value) = counts(&fabric, &["-f", "-c", "200", "-t", "50", &lid]);
        assert_eq!(status, Some(0), "some were answered");
        let lost = value["lost"].as_u64().expect("a number");
        assert!(
            (40..180).contains(&lost),
            "half of the packets are dropped: {value}"
        );
        assert_eq!(
            value["transmitted"].as_u64(),
            value["received"].as_u64().map(|received| received + lost)
        );
        assert_eq!(value["rtt_ns"]["samples"], value["received"]);
        let (_, value) = counts(
            &fabric,
            &["-f", "-c", "100", "-t", "50", "--tries", "60", &lid],
        );
        assert_eq!(value["lost"], 0, "{value}");
        assert!(value["resent"].as_u64() > Some(20), "{value}");
        // ibping counts in the same way; it has three tries, and gives up at the first packet that
        // the simulator reports.
        let said = text(
            &run(fabric
                .on("Hca1", "ibping")
                .args(["-f", "-c", "200", "-t", "50", &lid]))
            .stdout,
        );
        assert!(
            said.contains("200 packets transmitted") && !said.contains(" 0% packet loss"),
            "{said}"
        );
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn the_clock_is_right() {
    let fabric = Fabric::start();
    let _server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    let (_, value) = counts(&fabric, &["-f", "-c", "2000", &lid]);
    let pings = value["rtt_ns"]["mean"].as_f64().expect("a number") * 2000.0;
    let all = value["time_ns"].as_f64().expect("a number");
    assert!(
        pings > 0.5 * all && pings <= 1.01 * all,
        "a flood is nothing but round trips: {value}"
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn the_exit_status_is_pings() {
    let fabric = Fabric::start();
    let status = |args: &[&str]| run(ribping(&fabric).args(args)).status.code();
    let lid = fabric.lid("Hca4").to_string();
    let short = ["-c", "2", "-i", "0.01", "-t", "50"];
    assert_eq!(
        status(&[&short[..], &[&lid]].concat()),
        Some(1),
        "nobody serves there"
    );
    assert_eq!(
        status(&[&short[..], &["-G", "0x9999"]].concat()),
        Some(2),
        "no path"
    );
    assert_eq!(
        status(&[&short[..], &["-C", "mlx4_0", &lid]].concat()),
        Some(2),
        "no such adapter"
    );
    assert_eq!(
        status(&[&short[..], &["-P", "2", &lid]].concat()),
        Some(2),
        "no such port"
    );
    assert_eq!(
        status(&[&short[..], &["--size", "64", &lid]].concat()),
        Some(2),
        "a datagram has 256 bytes"
    );
    assert_eq!(status(&[]), Some(2));
    let _server = ribping_server(&fabric, &[]);
    assert_eq!(
        status(
            &[
                &short[..],
                &[
                    "-C",
                    "ibsim0",
                    "-P",
                    "1",
                    "-s",
                    &fabric.lid("Hca3").to_string(),
                    "-G",
                    &fabric.guid("Hca4")
                ]
            ]
            .concat()
        ),
        Some(0)
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn another_oui_is_another_service() {
    let fabric = Fabric::start();
    let _server = ribping_server(&fabric, &["-o", "0x1406"]);
    let lid = fabric.lid("Hca4").to_string();
    let (status, value) = counts(&fabric, &["-c", "2", "-i", "0.01", "-o", "0x1406", &lid]);
    assert_eq!((status, &value["received"]), (Some(0), &2.into()));
}

/// Bytes that look random, and a datagram whose header beyond the first bytes is made of them.
fn noise(seed: u32) -> Mad {
    let mut mad = VendorMad::request(MgmtClass::OPENIB_PING, OPENIB_OUI, b"");
    let mut state = u64::from(seed) << 32 | 0x9e37_79b9;
    // Answers without a question, and whose question it was, the simulator does not survive.
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

/// The ping class at this host's port.
fn agent(methods: Methods) -> Agent {
    let port = Port::open("ibsim0", 1).expect("the simulated port");
    port.register(AgentOptions {
        methods,
        ..AgentOptions::openib_ping()
    })
    .expect("the class")
}

/// Answers each eighth ping well, and the others in seven other ways.
fn answer_strangely() {
    let agent = agent(Methods::ALL);
    println!("answering strangely");
    let mut turn = 0;
    loop {
        let Some(ping) = agent.recv(None).expect("a port") else {
            continue;
        };
        let to = ping.from.reply();
        let Some(vendor) = VendorMad::of(&ping.mad) else {
            continue;
        };
        turn += 1;
        let mut answer = vendor.answer(b"node\0");
        let bytes = answer.as_bytes_mut();
        match turn % 8 {
            // Its sender's name is no text, and has no end.
            0 => bytes[40..].fill(0x1b),
            1 => agent.send_unanswered(&answer, &to).expect("sent"),
            // Another status, vendor, transaction, method, and all at once.
            2 => bytes[5] = 0x1c,
            3 => bytes[38] ^= 0xff,
            4 => bytes[15] ^= 0x80,
            5 => bytes[3] = 0x01,
            6 => bytes[24..].copy_from_slice(&noise(turn).as_bytes()[24..]),
            _ => continue,
        }
        agent.send_unanswered(&answer, &to).expect("sent");
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn strange_answers_are_counted_for_what_they_are() {
    if is_inside() {
        return answer_strangely();
    }
    let fabric = Fabric::start();
    let _server = fabric.serve_inside(
        "Hca4",
        "strange_answers_are_counted_for_what_they_are",
        "answering strangely",
    );
    let lid = fabric.lid("Hca4").to_string();
    let output = run(ribping(&fabric).args(["-c", "16", "-i", "0.01", "-t", "200", "-e", &lid]));
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!said.contains('\x1b'), "{said:?}");
    assert!(
        said.contains("16 packets transmitted") && !said.contains("16 received"),
        "{said}"
    );
    assert!(
        said.contains("Pong from node (Lid") && !said.contains("\n0 duplicates"),
        "{said}"
    );
    let errors = text(&output.stderr);
    for error in [
        "answered again",
        "invalid value in a field",
        "no answer in time",
        "an answer to nothing that was asked",
    ] {
        assert!(errors.contains(error), "{error}: {errors}");
    }
}

/// Sends noise to the host of this LID, and asks nothing of it.
fn ask_strangely(lid: Lid) {
    let agent = agent(Methods::NONE);
    for seed in 0..300 {
        agent
            .send_unanswered(&noise(seed), &Address::lid(lid))
            .expect("sent");
        // Answers that nobody takes pile up in the simulator.
        let _ = agent.recv(Some(Duration::from_millis(20))).expect("a port");
    }
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn strange_pings_do_not_end_the_server() {
    const TEST: &str = "strange_pings_do_not_end_the_server";
    const LID: &str = "STRANGE_TO";
    if is_inside() {
        return ask_strangely(std::env::var(LID).expect("a LID").parse().expect("a LID"));
    }
    let fabric = Fabric::start();
    let mut server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    fabric.inside_with("Hca1", TEST, &[(LID, &lid)]);
    let (status, value) = counts(&fabric, &["-c", "3", "-i", "0.01", &lid]);
    assert_eq!(
        (status, &value["received"]),
        (Some(0), &3.into()),
        "{value}"
    );
    assert!(!server.has_ended());
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn an_interrupt_ends_it_with_the_summary() {
    let fabric = Fabric::start();
    let server = ribping_server(&fabric, &[]);
    let lid = fabric.lid("Hca4").to_string();
    let mut command = ribping(&fabric);
    let child = command
        .args(["-i", "0.1", &lid])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("ribping");
    thread::sleep(Duration::from_secs(1));
    interrupt(child.id());
    let output = child.wait_with_output().expect("its output");
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(
        said.contains("ibping statistics ---") && said.contains(" 0% packet loss"),
        "{said}"
    );
    ends_at_an_interrupt(server);
}

fn ends_at_an_interrupt(mut server: Server) {
    interrupt(server.id());
    let until = Instant::now() + Duration::from_secs(5);
    while !server.has_ended() {
        assert!(Instant::now() < until, "the server ends, too");
        thread::sleep(Duration::from_millis(20));
    }
}

fn interrupt(process: u32) {
    let killed = Command::new("kill")
        .args(["-INT", &process.to_string()])
        .status()
        .expect("kill");
    assert!(killed.success());
}
