//! Messages of several buffers.

use ibverbs::{BufList, Direction, PostError, wr};

use crate::lab::{pair, roce_paths};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn list_is_gathered_and_scattered_in_order() {
    for (context, options) in roce_paths() {
        let options = options.max_send_sge(3).max_recv_sge(3);
        let mut pair = pair(&context, options);
        let bytes = |text: &[u8]| {
            let mut buf = pair.pd.buf(text.len()).expect("buffer");
            buf.copy_from_slice(text);
            buf
        };
        let list = BufList::new(vec![bytes(b"one "), bytes(b"two "), bytes(b"three")]);
        let into = BufList::new(vec![
            pair.pd.buf(2).expect("buffer"),
            pair.pd.buf(9).expect("buffer"),
            pair.pd.buf(64).expect("buffer"),
        ]);
        let again = BufList::new(vec![
            pair.pd.buf(8).expect("buffer"),
            pair.pd.buf(8).expect("buffer"),
        ]);
        pair.b.post_recv(wr::recv(into)).expect("receive");
        pair.b
            .recv_batch(|batch| -> ibverbs::Result<()> { Ok(batch.recv(wr::recv(again))?) })
            .expect("receive in a batch");
        pair.a.post_send(wr::send(list)).expect("send");
        for retired in pair.retire(2) {
            retired.check().expect("success");
            if retired.direction() == Direction::Recv {
                let bufs = retired.into_list().expect("posted with a list").into_bufs();
                let parts: Vec<&[u8]> = bufs.iter().map(|buf| &buf[..]).collect();
                assert_eq!(parts, [&b"on"[..], b"e two thr", b"ee"]);
            } else {
                assert_eq!(retired.into_list().expect("posted with a list").len(), 3);
            }
        }
        let list = BufList::new(vec![
            bytes_of(&pair.pd, b"12345678"),
            bytes_of(&pair.pd, b"9"),
        ]);
        pair.a
            .batch(|batch| -> ibverbs::Result<()> { Ok(batch.send(wr::send(list))?) })
            .expect("send in a batch");
        let received = pair.retire_received(2);
        let list = received.into_list().expect("posted with a list");
        assert_eq!((&list[0][..], &list[1][..]), (&b"12345678"[..], &b"9"[..]));
    }
}

fn bytes_of(pd: &ibverbs::ProtectionDomain, text: &[u8]) -> ibverbs::Buf {
    let mut buf = pd.buf(text.len()).expect("buffer");
    buf.copy_from_slice(text);
    buf
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn held_list_is_sent_repeatedly() {
    for (context, options) in roce_paths() {
        let options = options.max_send_sge(2);
        let mut pair = pair(&context, options);
        let (head, body) = (
            bytes_of(&pair.pd, b"head:").freeze(),
            bytes_of(&pair.pd, b"body").freeze(),
        );
        let (head, body) = (
            pair.a.hold(&head).expect("hold"),
            pair.a.hold(&body).expect("hold"),
        );
        let list = pair.a.hold_list(&[head, body]).expect("list");
        assert_eq!(list.len(), 9);
        for _ in 0..3 {
            pair.b
                .post_recv(wr::recv(pair.pd.buf(16).expect("buffer")))
                .expect("receive");
            pair.a.post_send(wr::send(list)).expect("send");
        }
        let received = pair.retire(6).into_iter().filter_map(|one| {
            one.check().expect("success");
            (one.direction() == Direction::Recv)
                .then(|| one.into_buf().expect("posted with a buffer").to_vec())
        });
        assert!(received.into_iter().all(|bytes| bytes == b"head:body"));
        let rejected = pair
            .b
            .post_send(wr::send(list))
            .expect_err("held by the other queue pair");
        assert_eq!(rejected.error(), PostError::WrongQueue);
    }
}
