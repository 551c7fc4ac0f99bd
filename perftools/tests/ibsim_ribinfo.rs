//! `ribinfo` against `ibstat` and `sminfo` on a simulated InfiniBand fabric.

use std::time::Duration;

use serde_json::Value;
use test_support::fabric::{Fabric, field};
use test_support::process;
use test_support::text::assert_contains;

const RIBINFO: &str = env!("CARGO_BIN_EXE_ribinfo");

/// Returns the output and the exit code of `ribinfo` on a host.
fn ribinfo(fabric: &Fabric, host: &str, args: &[&str]) -> (String, Option<i32>) {
    let output = process::output(fabric.command(host, RIBINFO).args(args));
    (output.text(), output.code())
}

fn json(fabric: &Fabric, host: &str, args: &[&str]) -> Value {
    let (text, code) = ribinfo(fabric, host, &[args, &["--json"]].concat());
    assert_eq!(code, Some(0), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn stat_prints_exactly_what_ibstat_prints() {
    let fabric = Fabric::start();
    for host in ["Hca1", "Hca2", "Hca4"] {
        for args in [&[][..], &["ibsim0"], &["ibsim0", "1"]] {
            let theirs = process::run(fabric.command(host, "ibstat").args(args));
            let ours = ribinfo(&fabric, host, &[&["stat"], args].concat());
            assert_eq!(ours, (theirs, Some(0)), "{host} {args:?}");
        }
    }
    let value = &json(&fabric, "Hca1", &["stat"])[0];
    assert_eq!(value["ports"][0]["base_lid"], fabric.lid("Hca1"));
    assert_eq!(value["ports"][0]["port_guid"], fabric.guid("Hca1"));
}

/// Removes the number after "activity count": it changes between two commands.
fn without_activity_count(line: &str) -> String {
    let (before, after) = line
        .split_once("activity count ")
        .expect("an activity count");
    let after = after.trim_start_matches(|c: char| c.is_ascii_digit());
    format!("{before}{after}")
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn sm_prints_what_sminfo_prints() {
    let fabric = Fabric::start();
    let theirs = process::run(&mut fabric.command("Hca1", "sminfo"));
    let (ours, code) = ribinfo(&fabric, "Hca1", &["sm"]);
    assert_eq!(code, Some(0), "{ours}");
    let (ours, port) = ours
        .trim_end()
        .split_once(" (of ")
        .expect("the name of the port");
    assert_eq!(port, "ibsim0/1)");
    assert_eq!(
        without_activity_count(ours),
        without_activity_count(theirs.trim_end()),
        "{ours}\n{theirs}"
    );
    let word = |key: &str| {
        theirs
            .split(key)
            .nth(1)
            .and_then(|rest| rest.split([' ', ',']).next())
            .unwrap_or_default()
    };
    let found = &json(&fabric, "Hca1", &["sm"])[0];
    let sm = &found["sm"];
    assert_eq!(found["device"], "ibsim0");
    assert_eq!(sm["lid"].to_string(), word("sm lid "));
    let guid = sm["guid"]
        .as_str()
        .and_then(|text| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok());
    assert_eq!(format!("0x{:x}", guid.expect("a GUID")), word("sm guid "));
    assert_eq!(sm["priority"].to_string(), word("priority "));
    assert_eq!(
        (sm["state"].to_string().as_str(), sm["state_name"].as_str()),
        (word("state "), Some("SMINFO_MASTER"))
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn link_is_compared_with_the_capabilities_of_its_port() {
    let fabric = Fabric::start();
    let mut smpquery = fabric.command("Hca1", "smpquery");
    let port_info = process::run(smpquery.args(["-D", "portinfo", "0", "1"]));
    // The simulated ports support 12X at 10 Gbit/s per lane, but 4X is enabled.
    assert!(
        field(&port_info, "LinkWidthSupported:").contains("12X")
            && field(&port_info, "LinkWidthEnabled:") == "4X",
        "{port_info}"
    );
    let (text, code) = ribinfo(&fabric, "Hca1", &["check", "link"]);
    let warning =
        "warning  link ibsim0/1: 10 Gb/sec (4X): the port's settings enable only 4 of 12 lanes => ";
    let remedy = "when nothing uses the port: ibportstate -C ibsim0 -P 1 -D 0 1 width 31 && ";
    assert!(text.starts_with(&format!("{warning}{remedy}")), "{text}");
    assert_eq!(code, Some(0));
    let (text, _) = ribinfo(&fabric, "Hca1", &["check", "nodes"]);
    assert_contains(&text, &["nodes ibsim0/1: /dev/infiniband/umad"]);
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn missing_subnet_manager_is_a_fault() {
    let mut fabric = Fabric::without_sm();
    let (text, code) = ribinfo(&fabric, "Hca1", &["check", "port"]);
    let fault = "fault    port ibsim0/1: INIT: no subnet manager has configured this port";
    assert!(text.starts_with(fault), "{text}");
    // In a container, the remedy is for its host.
    assert_contains(&text, &[" systemctl enable --now opensm"]);
    assert_eq!(code, Some(1));
    let (text, code) = ribinfo(&fabric, "Hca1", &["sm"]);
    assert!(
        text.contains("no subnet manager") && text.contains("opensm") && code == Some(1),
        "{text}"
    );
    fabric.start_sm();
    let (text, code) = ribinfo(&fabric, "Hca1", &["check", "port"]);
    assert_eq!(
        (text.as_str(), code),
        (
            "ok       port ibsim0/1: ACTIVE, IB\n0 faults, 0 warnings, 1 ok\n",
            Some(0)
        )
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn dead_and_standby_subnet_managers_are_found() {
    let mut fabric = Fabric::start();
    let (text, code) = ribinfo(&fabric, "Hca1", &["check", "sm"]);
    let lid = fabric.lid("Hca3");
    assert!(
        text.starts_with(&format!(
            "ok       sm ibsim0/1: subnet manager at LID {lid}, GUID "
        )) && text.contains("MASTER; no standby subnet manager"),
        "{text}"
    );
    assert_eq!(code, Some(0));
    // The same manager, queried by its LID, and a LID where none runs.
    let (text, code) = ribinfo(&fabric, "Hca1", &["sm", &lid.to_string()]);
    assert!(
        text.starts_with(&format!("sminfo: sm lid {lid} ")) && code == Some(0),
        "{text}"
    );
    let silent = fabric.lid("Hca2").to_string();
    let (text, code) = ribinfo(&fabric, "Hca1", &["sm", &silent]);
    assert!(
        text.contains(&format!(
            "the subnet manager at LID {silent} does not answer"
        )) && text.contains("start a subnet manager: systemctl enable --now opensm")
            && code == Some(1),
        "{text}"
    );
    fabric.stop_sm();
    let (text, code) = ribinfo(&fabric, "Hca1", &["check", "sm"]);
    assert!(
        text.starts_with(&format!(
            "fault    sm ibsim0/1: the subnet manager at LID {lid} does not answer"
        )) && text.contains("=> start a subnet manager: systemctl enable --now opensm"),
        "{text}"
    );
    assert_eq!(code, Some(1));
    let (text, code) = ribinfo(&fabric, "Hca1", &["check", "--status", "sm", "port"]);
    assert!(
        text.starts_with("ribinfo: fault: 1 fault, ") && code == Some(1),
        "{text}"
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn second_subnet_manager_is_shown_as_standby() {
    let fabric = Fabric::start();
    let second = fabric.start_standby_sm(3);
    let expected = format!("standby: LID {} with priority 3", fabric.lid("Hca5"));
    let mut text = String::new();
    let is_found = process::wait_until(Duration::from_secs(30), || {
        text = ribinfo(&fabric, "Hca1", &["check", "sm"]).0;
        text.contains(&expected)
    });
    assert!(is_found, "{expected}: {text}");
    assert!(text.contains("priority 15, MASTER"), "{text}");
    drop(second);
}
