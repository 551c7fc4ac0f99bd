//! Panics of the caller's code while objects are destroyed, and scopes that must abort the process.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Command, Output, Stdio};
use std::ptr::NonNull;

use crate::fixture::{self, PROFILES, Pair, pairs, small};
use fake_provider::Verb;
use ibverbs::{
    Error, MemoryOptions, Rc,
    mr::{Backing, CallerMemory},
    wr,
};

/// Name of the variable that selects the case in the child process.
const CASE: &str = "IBVERBS_TEST_ABORT_CASE";

/// Memory of a test. Its destructor panics, with a payload whose destructor panics.
struct PanickingOwner(*mut [u8; 64]);

struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        panic!("on purpose");
    }
}

#[allow(unsafe_code, reason = "only the thread of the test uses the memory")]
// SAFETY: the pointer is used by `drop` only.
unsafe impl Send for PanickingOwner {}
#[allow(unsafe_code, reason = "only the thread of the test uses the memory")]
// SAFETY: a shared reference gives no access to the pointer.
unsafe impl Sync for PanickingOwner {}

impl Drop for PanickingOwner {
    fn drop(&mut self) {
        #[allow(unsafe_code, reason = "frees the memory of a test")]
        // SAFETY: the pointer comes from `Box::into_raw` and is freed once.
        drop(unsafe { Box::from_raw(self.0) });
        std::panic::panic_any(PanicsOnDrop);
    }
}

/// Returns memory whose owner panics when it is dropped.
fn panicking_memory() -> CallerMemory {
    let bytes = Box::into_raw(Box::new([0_u8; 64]));
    let start = NonNull::new(bytes.cast::<u8>()).expect("allocated");
    #[allow(unsafe_code, reason = "provides memory of the caller")]
    // SAFETY: the memory is freed by the owner and not used by other code.
    unsafe {
        CallerMemory::new(start, 64, PanickingOwner(bytes))
    }
}

/// The owner is dropped in the middle of the destruction of a queue pair, after a request of its
/// tables was dropped.
#[test]
fn a_panicking_owner_of_memory_does_not_interrupt_a_drop() {
    for pair in pairs(PROFILES) {
        pair.fake.stall();
        let mut qp = pair
            .pd
            .create_qp::<Rc>(&pair.cq, &pair.cq, small())
            .expect("queue pair");
        qp.init(&fixture::path()).expect("INIT state");
        let options = || MemoryOptions::new().backing(Backing::Caller(panicking_memory()));
        for _ in 0..2 {
            let pool = pair.pd.pool_with(1, 64, options()).expect("pool");
            qp.post_recv(wr::recv(pool.take().expect("a free buffer")))
                .expect("receive");
        }
        drop(qp);
        let pool = pair.pd.pool_with(1, 64, options()).expect("pool");
        drop(pool);
        pair.fake.resume();
    }
}

/// Runs one case of this program in a child process. The process has no reader of its standard
/// error if `closed`.
fn child(test: &str, case: &str, closed: bool) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("path of this program"));
    command
        .args(["--exact", test, "--nocapture"])
        .env(CASE, case)
        .stdout(Stdio::piped());
    if !closed {
        return command.output().expect("child process");
    }
    let (reader, writer) = UnixStream::pair().expect("sockets");
    drop(reader);
    command
        .stderr(OwnedFd::from(writer))
        .output()
        .expect("child process")
}

/// Lets the driver refuse to destroy the queue pair of a scope, or to deregister its memory. Does
/// not return.
fn fail_to_end_a_scope(case: &str) {
    let mut pair = Pair::new(PROFILES[0]);
    pair.fake.stall();
    let mut memory = [1_u8; 64];
    let _ = pair.a.scope(|scope| -> Result<(), Error> {
        let lent = scope.lend_mut(&mut memory)?;
        if case == "destroy" {
            scope.post_recv(wr::recv(lent))?;
            pair.fake.fail_next(Verb::DestroyQp, libc::EBUSY);
        } else {
            pair.fake.fail_next(Verb::DeregMr, libc::EBUSY);
        }
        Ok(())
    });
    unreachable!("the borrow ended while the device could access the memory");
}

/// Borrowed memory cannot be leaked, so the process aborts if a driver does not release it, even if
/// the reason cannot be printed.
#[test]
#[cfg_attr(miri, ignore = "runs a process")]
fn a_scope_that_cannot_release_memory_aborts() {
    const NAME: &str = "panics::a_scope_that_cannot_release_memory_aborts";
    if let Ok(case) = std::env::var(CASE) {
        return fail_to_end_a_scope(&case);
    }
    for case in ["destroy", "deregister"] {
        for closed in [false, true] {
            let output = child(NAME, case, closed);
            assert_aborted(&output, case);
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(
                closed || stderr.contains("cannot end the device's access"),
                "{case}: {stderr}"
            );
        }
    }
}

fn assert_aborted(output: &Output, case: &str) {
    use std::os::unix::process::ExitStatusExt;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.signal(),
        Some(libc::SIGABRT),
        "{case}: {stderr}"
    );
}

#[cfg(feature = "tracing")]
mod subscriber {
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::{CASE, PanicsOnDrop, assert_aborted, child, fail_to_end_a_scope};

    /// Panics in each event of level ERROR.
    struct PanickingSubscriber;

    impl Subscriber for PanickingSubscriber {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            metadata.target() == "ibverbs"
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            if *event.metadata().level() == tracing::Level::ERROR {
                std::panic::panic_any(PanicsOnDrop);
            }
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    /// A subscriber panics while a scope destroys its queue pair, and the payload of the panic
    /// panics when it is dropped. The borrow does not end.
    #[test]
    #[cfg_attr(miri, ignore = "runs a process")]
    fn a_panicking_subscriber_does_not_end_a_borrow() {
        const NAME: &str = "panics::subscriber::a_panicking_subscriber_does_not_end_a_borrow";
        if std::env::var_os(CASE).is_some() {
            let run = || fail_to_end_a_scope("destroy");
            return tracing::subscriber::with_default(PanickingSubscriber, run);
        }
        let output = child(NAME, "destroy", false);
        assert_aborted(&output, "destroy");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(
            stderr.contains("access to borrowed memory: ibv_destroy_qp"),
            "{stderr}"
        );
    }
}
