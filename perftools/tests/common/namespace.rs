//! Tests in namespaces of their own. They need no privileges: the test program runs itself in a
//! user namespace, in which it is root.

use std::process::Command;

use test_support::process;

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
