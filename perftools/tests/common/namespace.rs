//! Tests in namespaces of their own. They need no privileges: the test program runs itself in a
//! user namespace, in which it is root.

use std::process::Command;

use test_support::process;

use super::{Server, rperf};

/// Set in the namespaces.
const INSIDE: &str = "RPERF_TEST_NAMESPACE";

/// Returns `true` inside of new namespaces. Otherwise runs `test` of this program there, which must
/// succeed, and returns `false`.
pub(crate) fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--net", "--mount", "--pid", "--fork"])
        .arg(std::env::current_exe().expect("the path of this program"))
        .args(["--ignored", "--exact", test, "--nocapture"])
        .env(INSIDE, "1");
    let output = process::output(&mut command);
    assert!(output.success(), "{output}");
    print!("{}", output.stdout);
    false
}

/// Runs a script, which must succeed.
pub(crate) fn shell(script: &str) {
    process::run(Command::new("sh").args(["-ec", script]));
}

/// Starts a server at port 7000 in a namespace `server` with the address 10.77.0.2, which a link
/// connects with the interface `client` of this one. `prepare` runs in this namespace before.
pub(crate) fn connected_server(prepare: &str) -> Server {
    shell(&format!(
        "mount -t tmpfs none /run; ip link set lo up
        ip netns add server
        ip link add client type veth peer name eth0 netns server
        ip addr add 10.77.0.1/30 dev client; ip link set client up
        ip -n server addr add 10.77.0.2/30 dev eth0; ip -n server link set eth0 up
        {prepare}"
    ));
    let mut command = Command::new("ip");
    command.args(["netns", "exec", "server"]);
    command.arg(rperf().get_program()).args(["-lp", "7000"]);
    Server::spawn(&mut command)
}
