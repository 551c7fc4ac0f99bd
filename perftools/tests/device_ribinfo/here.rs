//! Devices, the program, and its findings.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use clap::Parser;
use perftools::ribinfo::args::Info;

pub(crate) fn ribinfo() -> Command {
    Command::new(env!("CARGO_BIN_EXE_ribinfo"))
}

pub(crate) fn devices() -> Vec<String> {
    let names = std::env::var("RDMA_LAB_DEVICES")
        .expect("RDMA_LAB_DEVICES names the devices: run by ci/lab");
    let names: Vec<String> = names.split_whitespace().map(str::to_owned).collect();
    assert!(!names.is_empty(), "RDMA_LAB_DEVICES names no device");
    for name in &names {
        println!("device: {name}");
    }
    names
}

/// Returns the RoCE devices.
pub(crate) fn roce() -> Vec<String> {
    let is_ca = |name: &String| {
        fs::read_to_string(format!("/sys/class/infiniband/{name}/node_type"))
            .is_ok_and(|text| text.starts_with('1'))
    };
    let all: Vec<String> = devices().into_iter().filter(is_ca).collect();
    assert!(!all.is_empty(), "no RoCE device here");
    all
}

pub(crate) fn netdev(device: &str) -> String {
    let path = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    fs::read_to_string(path)
        .expect("a network interface")
        .trim()
        .to_owned()
}

pub(crate) fn output(command: &mut Command) -> (String, i32) {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (text, output.status.code().expect("it ends by itself"))
}

/// Returns the output and the exit code of `ribinfo`. It runs in this process because starting a
/// program takes long under emulation.
pub(crate) fn said(args: &[&str]) -> (String, i32) {
    let info = Info::try_parse_from([&["ribinfo"], args].concat()).expect("a sound command line");
    match perftools::ribinfo::run(&info) {
        Ok((text, status)) => (text, status.into()),
        Err(error) => (error.to_string(), 3),
    }
}

/// Returns the output and the exit code of `ribinfo check`.
pub(crate) fn check(args: &[&str]) -> (String, i32) {
    said(&[&["check"], args].concat())
}

pub(crate) fn run(line: &str) {
    let mut words = line.split_whitespace();
    let status = Command::new(words.next().unwrap())
        .args(words)
        .status()
        .expect(line);
    assert!(status.success(), "{line}");
}

/// Asserts that a finding has this level, this subject and all words. Returns its remedy.
pub(crate) fn finds(text: &str, level: &str, subject: &str, words: &[&str]) -> String {
    let found = text.lines().find(|line| {
        line.starts_with(&format!("{level:<8} {subject}"))
            && words.iter().all(|word| line.contains(word))
    });
    let line =
        found.unwrap_or_else(|| panic!("no {level} of {subject} with {words:?} in:\n{text}"));
    line.split_once(" => ")
        .map_or_else(String::new, |(_, remedy)| remedy.to_owned())
}

/// Runs the remedy of a finding.
pub(crate) fn mend(remedy: &str) {
    let status = Command::new("sh")
        .args(["-c", remedy])
        .status()
        .expect("sh");
    assert!(status.success(), "{remedy}");
}

pub(crate) fn wait(mut until: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !until() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(50));
    }
}
