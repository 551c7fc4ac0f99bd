//! ribinfo beside ibstat and sminfo, on a simulated InfiniBand fabric.

#[path = "../../ibumad/tests/fabric/mod.rs"]
mod fabric;

use fabric::{Fabric, field, run, said_by, text};
use serde_json::Value;

const RIBINFO: &str = env!("CARGO_BIN_EXE_ribinfo");

/// What ribinfo prints on a host, and its exit status.
fn ribinfo(fabric: &Fabric, host: &str, args: &[&str]) -> (String, Option<i32>) {
    let output = run(fabric.on(host, RIBINFO).args(args));
    (
        text(&output.stdout) + &text(&output.stderr),
        output.status.code(),
    )
}

fn json(fabric: &Fabric, host: &str, args: &[&str]) -> Value {
    let (text, status) = ribinfo(fabric, host, &[args, &["--json"]].concat());
    assert_eq!(status, Some(0), "{text}");
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn stat_is_ibstats_to_the_letter() {
    let fabric = Fabric::start();
    for host in ["Hca1", "Hca2", "Hca4"] {
        for args in [&[][..], &["ibsim0"], &["ibsim0", "1"]] {
            let theirs = said_by(fabric.on(host, "ibstat").args(args));
            let ours = ribinfo(&fabric, host, &[&["stat"], args].concat());
            assert_eq!(ours, (theirs, Some(0)), "{host} {args:?}");
        }
    }
    let value = &json(&fabric, "Hca1", &["stat"])[0];
    assert_eq!(value["ports"][0]["base_lid"], fabric.lid("Hca1"));
    assert_eq!(value["ports"][0]["port_guid"], fabric.guid("Hca1"));
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn sm_is_as_sminfo_says() {
    let fabric = Fabric::start();
    let theirs = said_by(fabric.on("Hca1", "sminfo").args::<[&str; 0], _>([]));
    let (ours, status) = ribinfo(&fabric, "Hca1", &["sm"]);
    assert_eq!(status, Some(0), "{ours}");
    // The count of activities goes on.
    let still = |line: &str| {
        let (before, after) = line
            .split_once("activity count ")
            .expect("the count of its activities");
        format!(
            "{before}{}",
            after.trim_start_matches(|c: char| c.is_ascii_digit())
        )
    };
    let (ours, of) = ours
        .trim_end()
        .split_once(" (of ")
        .expect("which port it is of");
    assert_eq!(of, "ibsim0/1)");
    assert_eq!(still(ours), still(theirs.trim_end()), "{ours}\n{theirs}");
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
fn a_link_is_judged_by_what_its_port_says_it_can_do() {
    let fabric = Fabric::start();
    let said = said_by(
        fabric
            .on("Hca1", "smpquery")
            .args(["-D", "portinfo", "0", "1"]),
    );
    // The simulator's ports can do 12X and 10 Gbps a lane, and are set to less.
    assert!(
        field(&said, "LinkWidthSupported:").contains("12X")
            && field(&said, "LinkWidthEnabled:") == "4X",
        "{said}"
    );
    let (said, status) = ribinfo(&fabric, "Hca1", &["check", "link"]);
    let warning =
        "warning  link ibsim0/1: 10 Gb/sec (4X): its settings let it have 4 of 12 lanes => ";
    assert_eq!(
        said.strip_prefix(warning)
            .map(|mends| mends.starts_with("ibportstate -C ibsim0 -P 1 -D 0 1 width 31 && ")),
        Some(true),
        "{said}"
    );
    assert_eq!(status, Some(1));
    let (said, _) = ribinfo(&fabric, "Hca1", &["check", "nodes"]);
    assert!(
        said.contains("nodes ibsim0/1: /dev/infiniband/umad"),
        "{said}"
    );
}

#[test]
#[ignore = "needs ibsim and opensm: run by ci/test tools"]
fn a_fabric_without_a_subnet_manager_is_found() {
    let mut fabric = Fabric::unmanaged();
    let (said, status) = ribinfo(&fabric, "Hca1", &["check", "port"]);
    let fault = "fault    port ibsim0/1: INIT: no subnet manager has configured it";
    assert!(
        said.starts_with(fault) && said.contains("=> systemctl enable --now opensm"),
        "{said}"
    );
    assert_eq!(status, Some(2));
    let (said, status) = ribinfo(&fabric, "Hca1", &["sm"]);
    assert!(
        said.contains("no subnet manager") && status == Some(3),
        "{said}"
    );
    fabric.manage();
    let (said, status) = ribinfo(&fabric, "Hca1", &["check", "port"]);
    assert_eq!(
        (said.as_str(), status),
        ("ok       port ibsim0/1: ACTIVE, IB\n", Some(0))
    );
}
