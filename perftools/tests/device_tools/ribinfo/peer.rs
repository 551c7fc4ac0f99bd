//! `ribinfo check --peer`, which compares this host with another one. The other host is a server on
//! this machine.

use std::process::Command;

use test_support::process::{self, Process};

use super::host_root::HostRoot;
use super::program::{assert_finding, check, ribinfo_command, roce_devices};

/// A server for `ribinfo check --peer`.
struct Peer {
    port: u16,
    /// Keeps the process of the server alive.
    _process: Process,
}

impl Peer {
    /// Runs `command` as the server, on a free port.
    fn from_command(mut command: Command, port_option: &str) -> Self {
        let port = process::free_tcp_port();
        command.args([port_option, &port.to_string()]);
        let process = Process::spawn(&mut command).wait_for_tcp_listener(port);
        Self {
            port,
            _process: process,
        }
    }

    /// Starts a server that reports the configuration below `root`.
    fn from_root(root: &HostRoot) -> Self {
        let mut serve = ribinfo_command();
        serve.arg("serve").arg("--root").arg(root.path());
        Self::from_command(serve, "--port")
    }

    /// Runs `ribinfo check` on these checks against the server. Returns the output and the exit
    /// status.
    fn check(&self, checks: &[&str]) -> (String, i32) {
        let port = self.port.to_string();
        check(&[checks, &["--peer", "127.0.0.1", "--peer-port", &port]].concat())
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn peer_with_another_roce_mode_is_a_fault() {
    for name in roce_devices() {
        let mut serve = ribinfo_command();
        serve.arg("serve");
        let rperf = Command::new(env!("CARGO_BIN_EXE_rperf"));
        for same_mode in [
            Peer::from_command(serve, "--port"),
            Peer::from_command(rperf, "--listen-port"),
        ] {
            let (text, status) = same_mode.check(&["roce", "peer"]);
            assert_finding(
                &text,
                "ok",
                &format!("roce {name}/1"),
                &["also uses RoCE v2"],
            );
            assert_eq!(status, 0, "{text}");
        }
        let root = HostRoot::with_roce_v1(&name);
        let other_mode = Peer::from_root(&root);
        let (text, status) = other_mode.check(&["roce"]);
        assert_finding(
            &text,
            "fault",
            &format!("roce {name}/1"),
            &[
                "they must match",
                "a v2 client cannot connect to a v1 server",
                "=> on ",
            ],
        );
        assert_eq!(status, 1);
    }
}
