//! Windows that the peer invalidates with a message.

use std::thread;

use ibverbs::{Direction, ErrorKind, WcStatus, mw::Type2, wr};

use crate::fixture::{IN_ORDER, PROFILES, Pair, pairs};
use crate::windows::{REMOTE_RW, bind_window, read, region, retire_bind};

#[test]
fn a_peer_invalidates_with_a_send() {
    for mut pair in pairs(PROFILES) {
        let (region, other) = (region(&pair, b"x"), region(&pair, b"y"));
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        pair.post_recvs(2);
        pair.a
            .post_send(wr::send(wr::Inline(b"not yet")))
            .expect("send");
        let (_, mut of_b) = pair.retire();
        let bound = bound
            .invalidated_by(&of_b.remove(0))
            .expect_err("a plain send invalidates nothing");
        pair.a
            .post_send(wr::send_with_inv(wr::Inline(b"done"), bound.remote().rkey))
            .expect("send");
        let (_, mut of_b) = pair.retire();
        let received = of_b.remove(0);
        assert_eq!(
            (received.direction(), received.invalidated_rkey()),
            (Direction::Recv, Some(bound.remote().rkey))
        );
        let window = bound.invalidated_by(&received).expect("invalidated");
        // Remote invalidation does not release the region.
        drop(region);
        assert_eq!(pair.fake.live().mrs, 3);
        assert_eq!(
            window
                .bind(&other, REMOTE_RW)
                .expect_err("another region")
                .kind(),
            ErrorKind::Mismatch
        );
        assert_eq!(pair.fake.live().mrs, 2);
    }
}

#[test]
fn a_window_invalidated_before_its_binding_retires_is_kept() {
    // Other devices signal every request.
    for profile in IN_ORDER {
        for is_dropped in [false, true] {
            let mut pair = Pair::new(profile);
            let region = region(&pair, b"x");
            let window = pair.pd.alloc_mw::<Type2>().expect("window");
            let (bound, binding) = window.bind(&region, REMOTE_RW).expect("binding");
            let remote = bound.remote();
            let unsignaled = wr::bind(binding).signaled(false);
            pair.b.post_send(unsignaled).expect("bind");
            pair.post_recvs(1);
            let message = wr::send_with_inv(wr::Empty, remote.rkey);
            pair.a.post_send(message).expect("send");
            let received = pair.retire().1.remove(0);
            let bound = bound.invalidated_by(&received);
            let bound = bound.expect_err("the binding has not retired");
            assert_eq!(read(&mut pair, remote).0, WcStatus::REM_ACCESS_ERR);
            let kept = (!is_dropped).then_some(bound);
            assert_eq!(pair.fake.live().mws, 1);
            // The completion of a later request retires the binding.
            pair.a.post_recv(wr::recv(wr::Empty)).expect("receive");
            pair.b.post_send(wr::send(wr::Empty)).expect("send");
            drop(pair.retire());
            assert_eq!(pair.fake.live().mws, usize::from(!is_dropped));
            if let Some(bound) = kept {
                let window = bound.invalidated_by(&received).expect("invalidated");
                drop(window.bind(&region, REMOTE_RW).expect("bound again"));
            }
        }
    }
}

#[test]
fn rebinding_races_safely_with_queue_pair_destruction() {
    for _ in 0..if cfg!(miri) { 3 } else { 100 } {
        let mut pair = Pair::new(PROFILES[0]);
        let region = region(&pair, b"x");
        let bound = bind_window(&mut pair, &region);
        retire_bind(&mut pair);
        pair.post_recvs(1);
        pair.a
            .post_send(wr::send_with_inv(wr::Empty, bound.remote().rkey))
            .expect("send");
        let received = pair.retire().1.remove(0);
        thread::scope(|scope| {
            scope.spawn(|| drop(pair.b));
            if let Ok(window) = bound.invalidated_by(&received) {
                drop(window.bind(&region, REMOTE_RW).expect("binding"));
            }
        });
    }
}

#[test]
fn invalidating_an_unknown_rkey_breaks_the_connection() {
    for mut pair in pairs(PROFILES) {
        pair.post_recvs(1);
        pair.a
            .post_send(wr::send_with_inv(wr::Empty, 0x1234))
            .expect("send");
        let (of_a, of_b) = pair.retire();
        assert!(!of_a[0].is_success() && !of_b[0].is_success());
    }
}
