//! Streams of an initiator.

use ibverbs::{
    AccessFlags, Context, CqOptions, Error, ErrorKind, PostError, QpOptions, QpState, Retired,
    WcStatus,
    dc::{DcDestination, DcKey, DcStreams, StreamDestination, StreamLimits},
    wr,
};

use super::{Initiator, initiator, initiator_path, nothing_completes, target};
use crate::lab::{REMOTE_ACCESS, devices_with, verb};

const LIMITS: StreamLimits = StreamLimits {
    concurrent: 4,
    errored: 4,
};

fn with_streams(context: &Context, limits: StreamLimits) -> Initiator<DcStreams> {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::new().depth(1024))
        .expect("completion queue");
    let options = QpOptions::new().max_send_wr(32).max_inline_data(64);
    let mut qp = pd
        .create_dc_streams_qp(&cq, options, limits)
        .expect("initiator");
    qp.start(&initiator_path(context)).expect("RTS state");
    Initiator { pd, cq, qp }
}

impl Initiator<DcStreams> {
    /// Posts an inline message, whose tag consists of its number and its stream.
    fn send(&mut self, target: DcDestination, stream: u16, number: u64) {
        let message = number.to_le_bytes();
        let request = wr::send(wr::Inline(&message));
        let there = StreamDestination { target, stream };
        let request = request.to(there).tag(tag(stream, number));
        self.qp.post_send(request).expect("posted");
    }

    /// Retires one completion, and checks its tag and status.
    fn expect(&mut self, stream: u16, number: u64, status: WcStatus) {
        let retired = self.retire(1).remove(0);
        assert_eq!(retired.tag(), tag(stream, number), "{retired:?}");
        assert_eq!(retired.status(), status, "{retired:?}");
    }
}

fn tag(stream: u16, number: u64) -> u64 {
    number << 16 | u64::from(stream)
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_stream_that_waits_delays_no_other_and_keeps_its_order() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let mut a = with_streams(&context, LIMITS);
        let mut slow = target(&context, 1, AccessFlags::empty());
        let mut fast = target(&context, 2, AccessFlags::empty());
        fast.post(20);
        let (to_slow, to_fast) = (a.to(&slow), a.to(&fast));
        a.send(to_slow, 1, 0);
        a.send(to_slow, 1, 1);
        for number in 0..20 {
            a.send(to_fast, 2, number);
        }
        for number in 0..20 {
            a.expect(2, number, WcStatus::SUCCESS);
            assert_eq!(fast.receive().tag(), number);
        }
        assert!(!a.qp.is_idle(), "the first stream still waits");
        slow.post(2);
        for number in 0..2 {
            a.expect(1, number, WcStatus::SUCCESS);
            let received = slow.receive().into_buf().expect("a buffer");
            assert_eq!(received[..], number.to_le_bytes());
        }
        assert!(a.qp.is_idle());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn number_of_concurrent_streams_is_limited() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let limits = StreamLimits {
            concurrent: 2,
            errored: 1,
        };
        let mut a = with_streams(&context, limits);
        let mut slow = target(&context, 1, AccessFlags::empty());
        let mut fast = target(&context, 2, AccessFlags::empty());
        fast.post(1);
        let (to_slow, to_fast) = (a.to(&slow), a.to(&fast));
        a.send(to_slow, 1, 0);
        a.send(to_slow, 2, 0);
        a.send(to_fast, 3, 0);
        nothing_completes(&mut a);
        // One of the two streams goes on, and then the third one as well.
        slow.post(1);
        let mut streams = a
            .retire(2)
            .iter()
            .map(|retired| {
                assert!(retired.is_success(), "{retired:?}");
                retired.tag() & 0xffff
            })
            .collect::<Vec<_>>();
        streams.sort_unstable();
        assert!([[1, 3], [2, 3]].contains(&[streams[0], streams[1]]));
        slow.post(1);
        assert!(a.retire(1).remove(0).is_success());
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn an_error_stops_one_stream_until_it_is_reset() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let mut a = with_streams(&context, LIMITS);
        let mut b = target(&context, 1, REMOTE_ACCESS);
        b.post(8);
        let good = a.to(&b);
        let wrong = DcDestination {
            key: DcKey(99),
            ..good
        };
        // The buffer of the failed request and those of the flushed ones return.
        let message = a.pd.buf(16).expect("buffer");
        let there = StreamDestination {
            target: wrong,
            stream: 1,
        };
        let request = wr::send(message).to(there).tag(5);
        a.qp.post_send(request).expect("posted");
        let failed = a.retire(1).remove(0);
        assert_eq!(failed.tag(), 5);
        assert!(!failed.is_success(), "{failed:?}");
        assert_ne!(failed.status(), WcStatus::WR_FLUSH_ERR);
        assert_eq!(failed.into_buf().expect("the buffer").len(), 16);
        assert_eq!(a.qp.state().expect("state"), QpState::RTS);

        // Even a correct request of the stream is flushed now, and the others are executed.
        for number in 0..3 {
            a.send(good, 1, number);
            a.send(good, 2, number);
        }
        let (mut flushed, mut succeeded) = (Vec::new(), Vec::new());
        for retired in a.retire(6) {
            match retired.status() {
                WcStatus::WR_FLUSH_ERR => flushed.push(retired.tag()),
                WcStatus::SUCCESS => succeeded.push(retired.tag()),
                status => panic!("{status}"),
            }
        }
        assert_eq!(flushed, [0, 1, 2].map(|number| tag(1, number)));
        assert_eq!(succeeded, [0, 1, 2].map(|number| tag(2, number)));

        // A stream that works cannot be reset.
        let error = a.qp.reset_stream(2).expect_err("no error");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert!(error.to_string().contains("stream 2 of a DC"), "{error}");
        a.qp.reset_stream(1).expect("reset");
        a.qp.reset_stream(1).expect_err("reset already");
        a.send(good, 1, 7);
        a.expect(1, 7, WcStatus::SUCCESS);
        for _ in 0..4 {
            assert!(b.receive().is_success());
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn too_many_failed_streams_stop_the_queue_pair() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let limits = StreamLimits {
            concurrent: 4,
            errored: 2,
        };
        let mut a = with_streams(&context, limits);
        let b = target(&context, 1, AccessFlags::empty());
        let good = a.to(&b);
        let wrong = DcDestination {
            key: DcKey(99),
            ..good
        };
        // A stream that was reset does not count.
        for stream in [1, 2] {
            a.send(wrong, stream, 0);
            assert!(!a.retire(1).remove(0).is_success());
            assert_eq!(a.qp.state().expect("state"), QpState::RTS);
            if stream == 1 {
                a.qp.reset_stream(1).expect("reset");
            }
        }
        // This one waits for a receive.
        a.send(good, 3, 0);
        a.send(wrong, 4, 0);
        let mut rest = a.retire(2);
        rest.sort_by_key(Retired::tag);
        assert_eq!(rest[0].status(), WcStatus::WR_FLUSH_ERR, "{rest:?}");
        assert!(!rest[1].is_success(), "{rest:?}");
        assert_eq!(a.qp.state().expect("state"), QpState::ERR);
        let error = a.qp.reset_stream(2).expect_err("wrong state");
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
        // Every stream is flushed.
        a.send(good, 5, 0);
        a.expect(5, 0, WcStatus::WR_FLUSH_ERR);
    }
}

/// libmlx5 counts free entries from the last completion that it saw. If that was the oldest request
/// of a full queue, the whole queue can be posted again nevertheless.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn queue_can_be_filled_after_its_oldest_request_completed_last() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let mut a = with_streams(&context, LIMITS);
        let mut slow = target(&context, 1, AccessFlags::empty());
        let fast = target(&context, 2, REMOTE_ACCESS);
        let to_slow = a.to(&slow);
        let there = StreamDestination {
            target: a.to(&fast),
            stream: 2,
        };
        let remote = fast.region.remote().slice(0..8).expect("within");
        let slots = a.qp.send_slots_free();
        for _ in 0..3 {
            a.send(to_slow, 1, 0);
            for number in 1..slots as u64 {
                let write = wr::write(wr::Inline(b"data"), remote);
                // Without effect: each request has a completion.
                let write = write.to(there).tag(number).signaled(false);
                a.qp.post_send(write).expect("posted");
            }
            for (retired, number) in a.retire(slots - 1).iter().zip(1..) {
                assert!(retired.is_success(), "{retired:?}");
                assert_eq!(retired.tag(), number);
            }
            // The entry of the oldest request is in use, and so are those after it.
            assert_eq!(a.qp.send_slots_free(), 0);
            let full = a.qp.post_send(wr::send(wr::Empty).to(there));
            let full = full.expect_err("no slot").error();
            assert!(matches!(full, PostError::QueueFull { .. }), "{full}");
            slow.post(1);
            a.expect(1, 0, WcStatus::SUCCESS);
            assert_eq!(a.qp.send_slots_free(), slots);
            a.qp.batch(|batch| -> Result<(), Error> {
                for number in 0..slots as u64 {
                    let write = wr::write(wr::Inline(b"data"), remote);
                    batch.send(write.to(there).tag(number))?;
                }
                Ok(())
            })
            .expect("the whole queue");
            let all = a.retire(slots);
            assert!(all.iter().all(Retired::is_success), "{all:?}");
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn memory_is_accessed_and_buffers_return_from_every_stream() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let mut a = with_streams(&context, LIMITS);
        let b = target(&context, 1, REMOTE_ACCESS);
        let target = a.to(&b);
        let word = b.region.remote().slice(0..8).expect("within");
        // More streams than are executed at the same time.
        for stream in 0..20_u16 {
            let there = StreamDestination { target, stream };
            let into = a.pd.buf(8).expect("buffer");
            let add = wr::fetch_add(into, word, 1).to(there).tag(stream.into());
            a.qp.post_send(add).expect("posted");
        }
        let mut before: Vec<u64> = a
            .retire(20)
            .into_iter()
            .map(|retired| {
                retired.check().expect("success");
                let bytes = retired.into_buf().expect("a buffer");
                u64::from_ne_bytes(bytes[..].try_into().expect("8 bytes"))
            })
            .collect();
        before.sort_unstable();
        assert_eq!(before, (0..20).collect::<Vec<_>>());

        // No receive is posted, so these wait until the queue pair is destroyed.
        for stream in 0..2 {
            let message = a.pd.buf(32).expect("buffer");
            let there = StreamDestination { target, stream };
            let request = wr::send(message).to(there).tag(stream.into());
            a.qp.post_send(request).expect("posted");
        }
        let sends = a.qp.destroy().expect("destroyed").sends;
        let tags = sends.iter().map(|(tag, buf)| (*tag, buf.len()));
        assert_eq!(tags.collect::<Vec<_>>(), [(0, 32), (1, 32)]);
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn invalid_limits_and_foreign_addresses_are_rejected() {
    for context in devices_with(&[verb::DC_STREAMS]) {
        let largest = context.query_dc_streams().expect("limits");
        assert!(largest.concurrent.is_power_of_two());
        assert!(largest.errored.is_power_of_two());
        let mut a = with_streams(&context, largest);
        for (concurrent, errored) in [(0, 1), (3, 1), (1, 3), (2 * largest.concurrent, 1)]
            .into_iter()
            .chain([(1, 2 * largest.errored)])
        {
            let limits = StreamLimits {
                concurrent,
                errored,
            };
            let created = a.pd.create_dc_streams_qp(&a.cq, QpOptions::new(), limits);
            let error = created.expect_err("not valid");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let help = error.help().expect("help");
            assert!(help.contains(&format!("at most {} concurrent", largest.concurrent)));
        }

        let b = target(&context, 1, AccessFlags::empty());
        let there = StreamDestination {
            target: initiator(&context).to(&b),
            stream: 1,
        };
        let rejected = a.qp.post_send(wr::send(wr::Empty).to(there));
        let error = rejected.expect_err("held by another queue pair").error();
        assert_eq!(error, PostError::WrongQueue);

        let pd = context.alloc_pd().expect("protection domain");
        let options = QpOptions::new();
        let mut new = pd
            .create_dc_streams_qp(&a.cq, options, LIMITS)
            .expect("created");
        let error = new.reset_stream(1).expect_err("not started");
        assert_eq!(error.kind(), ErrorKind::WrongState, "{error}");
    }
}
