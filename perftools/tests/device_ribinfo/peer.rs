//! Checks against a peer.

use std::process::{Child, Command, Stdio};

use perftools::ribinfo::collect::root::Root;
use perftools::ribinfo::peer;

use super::here::{check, finds, ribinfo, roce, wait};
use super::place::{Tree, with_roce_v1};

/// A server for `check --peer`. If it is a process, it is killed when it is dropped.
struct Served(Option<Child>, u16);

impl Served {
    fn by(serve: impl FnOnce(u16) -> Option<Child>) -> Self {
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .and_then(|l| l.local_addr())
            .expect("a port")
            .port();
        let child = serve(port);
        wait(|| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self(child, port)
    }

    /// Starts a process as the server.
    fn process(mut command: Command, option: &str) -> Self {
        Self::by(|port| {
            Some(
                command
                    .args([option, &port.to_string()])
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("it runs"),
            )
        })
    }

    /// Starts a thread as the server for a root directory. It runs until the test program exits.
    fn tree(tree: &Tree) -> Self {
        let root = Root::at(&tree.0).expect("a tree");
        Self::by(|port| {
            std::thread::spawn(move || peer::serve(&root, peer::ANY, port));
            None
        })
    }

    fn check(&self, subjects: &[&str]) -> (String, i32) {
        let port = self.1.to_string();
        check(&[subjects, &["--peer", "127.0.0.1", "--peer-port", &port]].concat())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn peer_with_another_roce_mode_is_a_fault() {
    for name in roce() {
        let mut serve = ribinfo();
        serve.arg("serve");
        let rperf = Command::new(env!("CARGO_BIN_EXE_rperf"));
        for same in [
            Served::process(serve, "--port"),
            Served::process(rperf, "--listen-port"),
        ] {
            let (text, status) = same.check(&["roce", "peer"]);
            finds(
                &text,
                "ok",
                &format!("roce {name}/1"),
                &["uses RoCE v2 too"],
            );
            assert_eq!(status, 0, "{text}");
        }
        let tree = with_roce_v1(&name);
        let other = Served::tree(&tree);
        let (text, status) = other.check(&["roce"]);
        finds(
            &text,
            "fault",
            &format!("roce {name}/1"),
            &[
                "they must match",
                "a v2 client and a v1 server do not connect",
                "=> on ",
            ],
        );
        assert_eq!(status, 2);
    }
}
