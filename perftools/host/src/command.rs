//! Commands of the host whose output has facts that are not in files.

use std::process::{Command, Stdio};

/// Returns the output of a command if it succeeds. `sbin` directories are searched too, because
/// they are not in the path of every user.
pub(super) fn output(command: &str, args: &[&str]) -> Option<String> {
    let path = std::env::var("PATH").unwrap_or_default() + ":/usr/local/sbin:/usr/sbin:/sbin";
    let mut run = Command::new(command);
    run.args(args)
        .env("PATH", path)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = run.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}
