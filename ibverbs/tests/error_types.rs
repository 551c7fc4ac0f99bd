//! Public error types: each converts to `std::io::Error`, a printed chain repeats no text, and a
//! `main` that returns one prints its message.

use std::collections::BTreeSet;
use std::error::Error as StdError;
use std::fs;
use std::io::{self, ErrorKind as Io};
use std::path::Path;

#[path = "fake/fixture.rs"]
mod fixture;

use fake_provider::{PostFault, Profile, Queue, Verb};
use fixture::{Fake, Pair, open};
use ibverbs::{
    AccessFlags, BatchError, Errno, Error, ErrorKind, ForeignCompletion, PostError, Rejected, mr,
    wr,
};

/// No test leaves objects of its device.
const LEAKS: bool = false;

/// All public error types of the published crates. Those of `ibverbs` and `rdma-types` are tested
/// below, the others by their crates.
const ERROR_TYPES: [&str; 12] = [
    "gpu-memory::Error",
    "ibverbs::BatchError",
    "ibverbs::ForeignCompletion",
    "ibverbs::PostError",
    "ibverbs::ReclaimError",
    "ibverbs::Rejected",
    "ibverbs::ReregError",
    "perftools/base::Error",
    "rdma-sys::LoadError",
    "rdma-types::Errno",
    "rdma-types::Error",
    "rdmacm::ConnectError",
];

/// Adds the types in the sources below `dir` that implement `std::error::Error`.
fn collect(crate_name: &str, dir: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(dir).expect("a source directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            collect(crate_name, &path, found);
            continue;
        }
        let source = fs::read_to_string(&path).expect("a source file");
        let mut derived = false;
        for line in source.lines().map(str::trim) {
            derived |= line.starts_with("#[derive(") && line.contains("thiserror::Error");
            // The macro implements `Debug` too.
            if let Some(name) = line.strip_prefix("wraps_error!(") {
                found.insert(format!("{crate_name}::{}", name.trim_end_matches(");")));
                continue;
            }
            let name = match line.split_once("std::error::Error for ") {
                Some((head, name)) if head.starts_with("impl") && !name.starts_with('$') => name,
                _ if derived && line.starts_with("pub ") => {
                    derived = false;
                    line.split_whitespace().nth(2).expect("a name")
                }
                _ => continue,
            };
            let end = name
                .find(|c: char| !c.is_alphanumeric())
                .unwrap_or(name.len());
            let name = &name[..end];
            if !source.contains(&format!("\nstruct {name}")) {
                found.insert(format!("{crate_name}::{name}"));
                // A derived one prints the fields.
                assert!(
                    source.contains(&format!("fmt::Debug for {name}")),
                    "{name} needs a Debug that prints the message"
                );
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "reads files")]
fn list_of_error_types_is_complete() {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the workspace");
    let mut found = BTreeSet::new();
    for name in [
        "rdma-sys",
        "rdma-types",
        "ibverbs",
        "rdmacm",
        "messenger",
        "ibumad",
        "gpu-memory",
    ] {
        collect(name, &workspace.join(name).join("src"), &mut found);
    }
    for part in fs::read_dir(workspace.join("perftools")).expect("the tools") {
        let part = part.expect("an entry");
        let name = format!("perftools/{}", part.file_name().display());
        if part.path().join("src").is_dir() {
            collect(&name, &part.path().join("src"), &mut found);
        }
    }
    let found: Vec<_> = found.iter().map(String::as_str).collect();
    assert_eq!(found, ERROR_TYPES, "add the type here and test it below");
}

/// Checks an error's conversion, its `Debug` output, which a `main` that returns it prints, and its
/// chain, printed as `{:#}` of the crate `anyhow` does.
#[track_caller]
fn check<E>(error: E, kind: Io)
where
    E: StdError + 'static,
    io::Error: From<E>,
{
    let mut parts = vec![error.to_string()];
    let mut source = error.source();
    while let Some(cause) = source {
        let part = cause.to_string();
        for earlier in &parts {
            assert!(!earlier.contains(&part), "{earlier}: {part}");
        }
        parts.push(part);
        source = cause.source();
    }
    let text = parts.join(": ");
    let returned = format!("{error:?}").replace("\nhelp: ", "; help: ");
    assert!(returned.starts_with(&error.to_string()), "{returned}");
    let converted = io::Error::from(error);
    assert_eq!(converted.kind(), kind, "{text}");
    assert!(!converted.to_string().is_empty());
}

/// A fault that makes the next post of `queue` fail.
fn fault(queue: Queue, errno: i32) -> PostFault {
    PostFault {
        queue,
        at: 0,
        errno,
        sets_bad_wr: true,
        executed: false,
    }
}

#[test]
fn every_error_converts_to_io_error() {
    check(
        Error::from_errno("ibv_open_device", Errno(libc::EACCES), "rxe0").with_help("check it"),
        Io::PermissionDenied,
    );
    check(
        Error::new(ErrorKind::TimedOut, "wait", "rxe0"),
        Io::TimedOut,
    );
    check(Errno(libc::ECONNREFUSED), Io::ConnectionRefused);
    check(PostError::QueueFull { capacity: 7 }, Io::WouldBlock);
    check(PostError::Refused(Errno(libc::ENOMEM)), Io::OutOfMemory);
    check(PostError::Unsupported, Io::Unsupported);
    check(PostError::WrongDomain, Io::InvalidInput);

    let mut pair = Pair::new(fixture::PROFILES[1]);
    pair.fake.fail_post(fault(Queue::Send, libc::EAGAIN));
    let rejected: Rejected<_> = pair
        .a
        .post_send(wr::send(wr::Empty))
        .expect_err("the fault");
    check(rejected, Io::WouldBlock);
    let long = pair
        .a
        .post_send(wr::send(wr::Inline(&[0; 4096])))
        .expect_err("too long");
    check(long, Io::InvalidInput);
    pair.fake.fail_post(fault(Queue::Send, libc::ENOMEM));
    let batch = pair.a.batch(|batch| {
        let added = batch.send(wr::send(wr::Empty));
        added.expect("a free slot");
        Ok::<(), BatchError>(())
    });
    let failed = batch.expect_err("the fault");
    assert!(failed.source().is_some());
    check(failed, Io::OutOfMemory);

    pair.a.post_send(wr::send(wr::Empty)).expect("send");
    pair.b.post_recv(wr::recv(wr::Empty)).expect("receive");
    let completion = pair.cq.poll().expect("poll").next().expect("an entry");
    let b = completion.queue() == pair.b.id();
    let owner = if b { &mut pair.a } else { &mut pair.b };
    let foreign: ForeignCompletion = owner.retire(completion).expect_err("of the other one");
    check(foreign, Io::InvalidInput);
    drop(pair);

    let fake = Fake::new(Profile::RXE);
    let pd = open(&fake).alloc_pd().expect("protection domain");
    let region = pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
    fake.fail_next(Verb::RegMr, libc::ENOMEM);
    let failed: mr::ReclaimError = region.try_into_buf().expect_err("the fault");
    check(failed, Io::OutOfMemory);
    let region = pd.shared(64, AccessFlags::REMOTE_READ).expect("region");
    let clone = region.clone();
    let failed: mr::ReregError = region
        .rereg(AccessFlags::REMOTE_WRITE)
        .expect_err("there is a clone");
    check(failed, Io::InvalidInput);
    drop(clone);
}
