//! Devices that complete sends out of order: a completion retires its own request only.

use crate::fixture::{OUT_OF_ORDER, Pair, buf_bytes};
use fake_provider::SendOrder;
use ibverbs::{AccessFlags, RemoteMemory, SharedRegion, wr};

/// Returns memory of `b` that contains `bytes`, and its remote address.
fn region(pair: &Pair, bytes: &[u8]) -> (SharedRegion, RemoteMemory) {
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let region = pair.pd.shared(bytes.len(), access).expect("region");
    region.write(0, bytes).expect("in range");
    let remote = region.remote();
    (region, remote)
}

/// Polls once and returns the tags of the requests that retired.
fn retire_once(pair: &mut Pair) -> Vec<u64> {
    let completions = pair.cq.poll().expect("poll");
    completions
        .map(|completion| pair.a.retire(completion).expect("in flight").tag())
        .collect()
}

#[test]
fn a_later_write_leaves_a_read_in_flight() {
    for profile in OUT_OF_ORDER {
        let mut pair = Pair::new(profile);
        let (_region, remote) = region(&pair, b"data");
        let sink = pair.buf(&[0; 4]);
        let free = pair.pool.available();
        pair.a
            .post_send(wr::read(sink, remote).tag(1))
            .expect("read");
        pair.a
            .post_send(wr::write(wr::Inline(b"DATA"), remote).tag(2))
            .expect("write");
        if profile.send_order == SendOrder::ReadsLate {
            assert_eq!(retire_once(&mut pair), [2]);
            assert_eq!(pair.pool.available(), free, "the device writes to the sink");
        }
        let (mut sent, _) = pair.retire();
        let read = sent.pop().expect("the READ completes last");
        assert_eq!(read.tag(), 1);
        let expected = match profile.send_order {
            SendOrder::ReadsLate => b"DATA",
            _ => b"data",
        };
        assert_eq!(buf_bytes(read), expected);
    }
}
