//! Devices, the program, and its findings.

use std::process::Command;
use std::time::Duration;

use clap::Parser;
use perftools::ribinfo::args::Info;
use test_support::{lab, process};

pub(crate) fn ribinfo_command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ribinfo"))
}

/// Returns the names of the devices to test on and reports each of them.
pub(crate) fn devices() -> Vec<String> {
    lab::reported_device_names()
}

/// Returns the names of the RoCE devices to test on and reports all devices.
pub(crate) fn roce_devices() -> Vec<String> {
    let mut all = devices();
    all.retain(|name| !lab::is_iwarp(name));
    assert!(!all.is_empty(), "no RoCE device");
    all
}

/// Runs a command and returns its output and exit code.
pub(crate) fn output(command: &mut Command) -> (String, i32) {
    let output = process::output(command);
    (output.text(), output.code().expect("an exit code"))
}

/// Returns the output and the exit code of `ribinfo`. It runs in this process because starting a
/// program takes long under emulation.
pub(crate) fn ribinfo(args: &[&str]) -> (String, i32) {
    let info = Info::try_parse_from([&["ribinfo"], args].concat()).expect("a valid command line");
    match perftools::ribinfo::run(&info) {
        Ok((text, code)) => (text, code.into()),
        Err(error) => (error.to_string(), error.exit_status().into()),
    }
}

/// Returns the output and the exit code of `ribinfo check --strict`: 1 with warnings or faults.
pub(crate) fn check(args: &[&str]) -> (String, i32) {
    ribinfo(&[&["check", "-v", "--strict"], args].concat())
}

/// Waits until `ribinfo check` exits with this code. The caller asserts the result.
pub(crate) fn wait_for_check(args: &[&str], code: i32) {
    process::wait_until(Duration::from_secs(10), || check(args).1 == code);
}

/// Asserts that a finding has this level, this check and all words. Returns its remedy.
pub(crate) fn assert_finding(text: &str, level: &str, check: &str, words: &[&str]) -> String {
    let found = text.lines().find(|line| {
        line.starts_with(&format!("{level:<8} {check}"))
            && words.iter().all(|word| line.contains(word))
    });
    let line = found.unwrap_or_else(|| panic!("no {level} of {check} with {words:?} in:\n{text}"));
    line.split_once(" => ")
        .map_or_else(String::new, |(_, remedy)| remedy.to_owned())
}

/// Runs the remedy of a finding. A person first checks its condition.
pub(crate) fn apply(remedy: &str) {
    let commands = match remedy.strip_prefix("when nothing uses ") {
        Some(rest) => rest.split_once(": ").expect("a command").1,
        None => remedy,
    };
    process::run(Command::new("sh").args(["-c", commands]));
}
