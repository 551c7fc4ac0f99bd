//! Programs with the feature `dlopen` start without the libraries and report which one is missing.

// Not `required-features`: `cargo test --test '*'` would be an error without the feature.
#![cfg(feature = "dlopen")]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use ibverbs::{ErrorKind, device::Device, fork};
use rdmacm::EventChannel;
use rdmacm::address::{LookupOptions, lookup};
use test_support::temp_dir::TempDir;

/// Selects what [`child`] does.
const CHILD: &str = "RDMACM_DLOPEN_CHILD";

fn loaded() -> Vec<&'static str> {
    let maps = fs::read_to_string("/proc/self/maps").expect("maps of this process");
    ["libibverbs.so", "librdmacm.so", "libmlx5.so", "libefa.so"]
        .into_iter()
        .filter(|name| maps.contains(name))
        .collect()
}

/// Not a test of its own: the others run it in a process that has called no library yet.
#[test]
fn child() {
    match env::var(CHILD).as_deref() {
        Ok("loads") => {
            assert_eq!(loaded(), [""; 0]);
            // There may be no device, and no support in the kernel.
            let _ = Device::list();
            assert_eq!(loaded().first(), Some(&"libibverbs.so"));
            assert!(!loaded().contains(&"librdmacm.so"));
            let _ = EventChannel::create();
            assert!(loaded().contains(&"librdmacm.so"));
        }
        Ok("without libibverbs") => {
            for error in [Device::list().unwrap_err(), fork::init().unwrap_err()] {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.message().contains("libibverbs.so.1"), "{error}");
                let help = error.help().expect("a remedy");
                assert!(help.starts_with("install libibverbs"), "{help}");
            }
            assert_eq!(fork::status(), fork::ForkStatus::DISABLED);
        }
        Ok("without librdmacm") => {
            let channel = EventChannel::create().map(drop).unwrap_err();
            let addresses = lookup(Some("127.0.0.1"), None, LookupOptions::new()).unwrap_err();
            for error in [channel, addresses] {
                assert_eq!(error.kind(), ErrorKind::Unsupported);
                assert!(error.message().contains("librdmacm.so.1"), "{error}");
                let help = error.help().expect("a remedy");
                assert!(help.starts_with("install librdmacm"), "{help}");
            }
        }
        Ok("without functions") => {
            let error = Device::list().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.message().contains("ibv_get_device_list"), "{error}");
        }
        _ => {}
    }
}

/// Runs [`child`] in a process of its own. Libraries in `directory` come before those of the
/// system.
fn run_child(case: &str, directory: Option<&Path>) {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command
        .args(["--exact", "child", "--nocapture"])
        .env(CHILD, case);
    if let Some(directory) = directory {
        command.env("LD_LIBRARY_PATH", directory);
    }
    let output = command.output().expect("the child runs");
    assert!(output.status.success(), "{case}: {output:?}");
}

#[test]
fn libraries_are_loaded_when_they_are_first_used() {
    run_child("loads", None);
}

#[test]
fn missing_library_is_named_with_what_to_install() {
    for (name, case) in [
        ("libibverbs.so.1", "without libibverbs"),
        ("librdmacm.so.1", "without librdmacm"),
    ] {
        // The dynamic linker takes the first file of this name, and it is not a library.
        let directory = TempDir::new();
        fs::write(directory.path().join(name), "").expect("a file");
        run_child(case, Some(directory.path()));
    }
}

#[test]
fn library_without_the_function_is_an_error() {
    let directory = TempDir::new();
    let library = directory.path().join("libibverbs.so.1");
    let status = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&library)
        .status()
        .expect("cc, which linked this program");
    assert!(status.success());
    run_child("without functions", Some(directory.path()));
}
