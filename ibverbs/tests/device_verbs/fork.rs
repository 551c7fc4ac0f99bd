//! Fork support after a device was opened.

#![allow(unsafe_code)]

use ibverbs::fork::{self, ForkStatus};
use ibverbs::{ErrorKind, wr};

use crate::lab::{self, devices, pair, roce_paths};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn fork_init_fails_after_open_if_needed() {
    for context in devices() {
        println!("device: {}", context.device_name());
        println!("fork support: {}", fork::status());
        if fork::status() == ForkStatus::DISABLED {
            let error = fork::init().expect_err("a device is open");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(
                error
                    .help()
                    .is_some_and(|hint| hint.contains("RDMAV_FORK_SAFE")),
                "{error}"
            );
            assert!(!fork::is_initialized());
        } else {
            fork::init().expect("nothing to do");
            assert!(fork::is_initialized());
        }
    }
}

/// With Soft-RoCE, the queues are memory that both processes share.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_child_that_posts_does_not_disturb_its_parent() {
    for (context, options) in roce_paths() {
        let mut pair = pair(&context, options.max_inline_data(32));
        let recv = |pair: &lab::Pair| wr::recv(pair.pd.buf(16).expect("buffer"));
        let request = recv(&pair);
        pair.b.post_recv(request).expect("receive");
        // SAFETY: the child only posts, and ends without a destructor.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let posted = pair.a.post_send(wr::send(wr::Inline(b"child")));
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(posted.is_ok())) };
        }
        let mut status = 0;
        // SAFETY: `status` is writable.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        let is_aborted = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT;
        assert_eq!(is_aborted, pair.a.is_extended(), "{status:#x}");
        assert!(is_aborted || libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0);
        let send = wr::send(wr::Inline(b"parent")).tag(7);
        pair.a.post_send(send).expect("send");
        let retired = pair.retire(2);
        assert!(retired.iter().all(ibverbs::Retired::is_success));
        let received = retired.into_iter().find_map(ibverbs::Retired::into_buf);
        assert_eq!(received.expect("a message")[..], *b"parent");
    }
}
