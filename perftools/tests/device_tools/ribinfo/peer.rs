//! `ribinfo check --peer` and `--peer-facts`, which compare this host with another one. The other
//! host is a server on this machine, or the facts of a changed copy of this one.

use test_support::temp_dir::TempDir;

use super::host_root::HostRoot;
use super::program::{assert_finding, check, ribinfo, roce_devices};
use crate::common::Server;

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn peer_with_another_roce_mode_is_a_fault() {
    let server = Server::start();
    let port = server.port.to_string();
    let directory = TempDir::new();
    for name in roce_devices() {
        let (text, status) = check(&["roce", "peer", "--peer", "127.0.0.1", "--port", &port]);
        assert_finding(
            &text,
            "ok",
            &format!("roce {name}/1"),
            &["also uses RoCE v2"],
        );
        assert_eq!(status, 0, "{text}");
        let root = HostRoot::with_roce_v1(&name);
        let (facts, status) = ribinfo(&["facts", "--root", &root.path().display().to_string()]);
        assert_eq!(status, 0, "{facts}");
        let facts = directory.write("facts.json", &facts);
        let (text, status) = check(&["roce", "--peer-facts", &facts.display().to_string()]);
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
