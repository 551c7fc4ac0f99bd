//! Replies of Linux 6.12 while `rping` ran as client and as server on rxe0.

use super::netlink::Reply;
use super::*;

/// Returns a captured reply.
fn captured(name: &str) -> io::Result<Reply> {
    let path = format!(
        "{}/../tests/fixtures/netlink/{name}",
        env!("CARGO_MANIFEST_DIR")
    );
    let bytes = fs::read(path).expect("a captured reply");
    let mut reply = Reply::default();
    assert!(reply.add(&bytes, 1)?, "{name} is incomplete");
    Ok(reply)
}

fn process(pid: u32) -> Owner {
    Owner::Process {
        pid,
        name: format!("program {pid}"),
    }
}

fn captured_objects(kind: Kind) -> Vec<Resource> {
    let reply = captured(kind.name()).expect("a reply");
    reply
        .messages()
        .flat_map(|message| objects(message, kind, process).collect::<Vec<_>>())
        .collect()
}

#[test]
fn queue_pairs_have_owners_and_states() {
    let found = captured_objects(Kind::Qp);
    let summary: Vec<_> = found
        .iter()
        .map(|qp| (qp.id, qp.owner.clone(), qp.service, qp.state, qp.remote_qpn))
        .collect();
    assert_eq!(
        summary,
        [
            (Some(17), process(82), Some(2), Some(3), Some(18)),
            (Some(18), process(79), Some(2), Some(3), Some(17)),
            (
                Some(1),
                Owner::Kernel("ib_core".into()),
                Some(1),
                Some(3),
                None
            ),
        ]
    );
}

#[test]
fn objects_of_all_kinds_are_counted_by_owner() {
    let mut all: Vec<Resource> = Kind::ALL.into_iter().flat_map(captured_objects).collect();
    all.sort();
    let usage = usage(&all);
    let owners: Vec<_> = usage.iter().map(|usage| &usage.owner).collect();
    assert!(
        matches!(
            owners[..],
            [
                Owner::Process { pid: 79, .. },
                Owner::Process { pid: 82, .. },
                // A thread of the client, which opened the device.
                Owner::Process { pid: 84, .. },
                Owner::Kernel(_)
            ]
        ),
        "{owners:?}"
    );
    let client = &usage[1];
    let counts: Vec<_> = client
        .counts
        .iter()
        .map(|(kind, n)| (kind.name(), *n))
        .collect();
    assert_eq!(
        counts,
        [("qp", 1), ("cm_id", 1), ("cq", 1), ("mr", 4), ("pd", 1)]
    );
    assert_eq!(client.registered_bytes, 16 + 16 + 64 + 64);
}

#[test]
fn threads_have_a_process() {
    let status = "Name:\trping\nTgid:\t82\nPid:\t84\n";
    assert_eq!(process_of(status), Some(82));
    assert_eq!((process_of("Tgid:\tx\n"), process_of("")), (None, None));
    let id = std::process::id();
    assert!(
        matches!(Processes::default().get(id), Owner::Process { pid, name } if pid == id && !name.is_empty())
    );
    let ended = Owner::Process {
        pid: u32::MAX,
        name: String::new(),
    };
    assert_eq!(Processes::default().get(u32::MAX), ended);
}

#[test]
fn counters_have_names_and_values() {
    let reply = captured("counters").expect("a reply");
    let found: Vec<_> = reply.messages().flat_map(counters::values).collect();
    assert_eq!(found.len(), 15);
    assert!(
        found
            .iter()
            .any(|(name, value)| name == "sent_pkts" && *value > 0),
        "{found:?}"
    );
}

#[test]
fn error_of_the_kernel_is_returned() {
    let error = captured("error").expect_err("siw has no counters");
    assert_eq!(Errno::from_io_error(&error), Some(Errno::INVAL));
    assert!(is_absent(&error));
}

#[test]
fn truncated_and_foreign_replies_are_errors() {
    let bytes = fs::read(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/fixtures/netlink/devices"
    ))
    .expect("a captured reply");
    for len in (1..bytes.len()).filter(|len| len % 4 != 0) {
        assert!(Reply::default().add(&bytes[..len], 1).is_err(), "{len}");
    }
    let mut other = Reply::default();
    assert!(!other.add(&bytes, 2).expect("valid messages"));
    assert_eq!(other.messages().count(), 0);
}
