//! `rperf mesh` starts its servers with a real sshd and with Slurm. Neither the end of a run nor
//! the death of the coordinator leaves a server behind.

use std::process::Command;

use test_support::process;

/// Runs a script in new namespaces, and returns its output.
fn run(script: &str, options: &[&str]) -> String {
    let path = format!("{}/tests/mesh_start/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--pid", "--fork", "--mount-proc"])
        .args(options)
        .args(["sh", &path, env!("CARGO_BIN_EXE_rperf")]);
    let output = process::output(&mut command);
    assert!(output.success(), "{output}");
    output.stdout
}

fn assert_no_server_left(text: &str, servers: u32, cells: usize) {
    // The record of a mesh has one cell per line.
    let figures = text.lines().filter(|line| line.starts_with("{\"from\""));
    let failed = figures.clone().filter(|line| !line.contains("\"latency\""));
    assert_eq!(
        (figures.clone().count(), failed.count()),
        (cells, 0),
        "{text}"
    );
    assert!(text.contains("servers after the run: 0\n"), "{text}");
    let during = format!("servers during the run: {servers}\n");
    assert!(text.contains(&during), "{text}");
    let after = "servers after the death of the coordinator: 0\n";
    assert!(text.contains(after), "{text}");
}

#[test]
#[ignore = "needs root, network namespaces and sshd: run by ci/test tools"]
fn servers_start_by_ssh() {
    assert_no_server_left(&run("ssh.sh", &[]), 2, 2);
}

#[test]
#[ignore = "needs root, network namespaces and slurm-wlm: run by ci/test tools"]
fn servers_start_by_slurm() {
    assert_no_server_left(&run("slurm.sh", &["--uts"]), 4, 12);
}
