//! RDMA READs into several pieces of local memory, and results in a part of a buffer.

use crate::fixture::{self, IN_ORDER, PROFILES, Pair, small};
use fake_provider::Profile;
use ibverbs::{AccessFlags, BufList, PostError, Rc, RemoteMemory, SharedRegion, wr};

const REMOTE_RW: AccessFlags = AccessFlags::REMOTE_READ
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Creates a [`Pair`] with queue pairs that accept lists of four entries, and a region with the
/// numbers from 0.
fn setup(profile: Profile) -> (Pair, SharedRegion) {
    let mut pair = Pair::new(profile);
    let options = small().max_send_sge(4).max_recv_sge(4);
    let create = |pair: &Pair| pair.pd.create_qp::<Rc>(&pair.cq, &pair.cq, options);
    pair.a = create(&pair).expect("a");
    pair.b = create(&pair).expect("b");
    fixture::connect(&mut pair.a, &mut pair.b);
    let region = pair.pd.shared(64, REMOTE_RW).expect("region");
    let numbers: Vec<u8> = (0..64).collect();
    region.write(0, &numbers).expect("in range");
    (pair, region)
}

impl Pair {
    fn sized(&self, sizes: &[usize]) -> BufList {
        let buf = |&size| self.pd.buf(size).expect("buffer");
        BufList::new(sizes.iter().map(buf).collect())
    }
}

fn part(region: &SharedRegion, start: u64, len: u64) -> RemoteMemory {
    region.remote().slice(start..start + len).expect("in range")
}

#[test]
fn a_read_fills_the_buffers_of_a_list_in_order() {
    for profile in PROFILES {
        let (mut pair, region) = setup(profile);
        for (len, expected) in [
            (10, [&[10, 11, 12][..], &[13, 14, 15, 16], &[17], &[18, 19]]),
            (3, [&[10, 11, 12], &[], &[], &[]]),
            (0, [&[], &[], &[], &[]]),
        ] {
            // As many as the device can read into.
            let list = pair.sized(&[3, 4, 1, 40]);
            pair.a
                .post_send(wr::read(list, part(&region, 10, len)))
                .expect("read");
            let retired = pair.retire().0.remove(0);
            retired.check().expect("read");
            let list = retired.into_list().expect("a list");
            assert_eq!(
                list.iter().map(|buf| &buf[..]).collect::<Vec<_>>(),
                expected
            );
        }
        // Buffers without data need no entry.
        let list = pair.sized(&[1; 6]);
        let read = wr::read(list, part(&region, 10, 4));
        pair.a.post_send(read).expect("read");
        drop(pair.retire());
    }
}

#[test]
fn a_batch_of_reads_into_lists_keeps_their_entries() {
    for profile in PROFILES {
        let (mut pair, region) = setup(profile);
        let lists = [pair.sized(&[1, 2]), pair.sized(&[2, 2])];
        pair.a
            .batch(|batch| -> ibverbs::Result<()> {
                for (list, start) in lists.into_iter().zip([0, 32]) {
                    batch.send(wr::read(list, part(&region, start, 3)))?;
                }
                Ok(())
            })
            .expect("batch");
        let lists = pair.retire().0.into_iter().map(|retired| {
            retired.check().expect("read");
            let list = retired.into_list().expect("a list");
            list.iter().flat_map(|buf| buf.to_vec()).collect::<Vec<_>>()
        });
        assert_eq!(lists.collect::<Vec<_>>(), [[0, 1, 2], [32, 33, 34]]);
    }
}

#[test]
fn a_read_fills_a_list_of_held_memory_of_its_length() {
    for profile in PROFILES {
        let (mut pair, region) = setup(profile);
        let into = pair
            .pd
            .shared(64, AccessFlags::REMOTE_WRITE)
            .expect("region");
        let whole = pair.a.hold(&into).expect("hold");
        let pieces = [40..42, 8..11].map(|range| whole.slice(range).expect("in range"));
        let list = pair.a.hold_list(&pieces).expect("list");
        pair.a
            .post_send(wr::read(list, part(&region, 20, 5)))
            .expect("read");
        drop(pair.retire());
        let (mut first, mut second) = ([0; 2], [0; 3]);
        into.read(40, &mut first).expect("in range");
        into.read(8, &mut second).expect("in range");
        assert_eq!((first, second), ([20, 21], [22, 23, 24]));
        for (len, error) in [
            (4, PostError::BeyondRemote { len: 5, remote: 4 }),
            (6, PostError::BeyondLocal { len: 6, local: 5 }),
        ] {
            let rejected = pair.a.post_send(wr::read(list, part(&region, 20, len)));
            assert_eq!(rejected.expect_err("another length").error(), error);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri is slow")]
fn a_read_is_shorter_than_4_gib() {
    let (mut pair, region) = setup(Profile::RXE);
    let into = pair.pd.shared(1 << 20, REMOTE_RW).expect("region");
    let held = pair.a.hold(&into).expect("hold");
    let list = pair.a.hold_list(&vec![held; 1 << 12]).expect("list");
    let remote = |len| RemoteMemory {
        len,
        ..region.remote()
    };
    let local = list.len();
    assert_eq!(local, 1 << 32);
    for (len, error) in [
        (local, PostError::BeyondLocal { len: local, local }),
        (
            local - 1,
            PostError::BeyondRemote {
                len: local,
                remote: local - 1,
            },
        ),
    ] {
        let rejected = pair.a.post_send(wr::read(list, remote(len)));
        assert_eq!(rejected.expect_err("too long").error(), error);
    }
}

#[test]
fn reads_into_lists_have_the_limits_of_the_device() {
    let (mut pair, region) = setup(Profile::SIW);
    let into = pair
        .pd
        .shared(64, AccessFlags::REMOTE_WRITE)
        .expect("region");
    let whole = pair.a.hold(&into).expect("hold");
    let pieces = [0..2, 8..10].map(|range| whole.slice(range).expect("in range"));
    let list = pair.a.hold_list(&pieces).expect("list");
    let rejected = pair.a.post_send(wr::read(list, part(&region, 0, 4)));
    assert_eq!(
        rejected.expect_err("two entries").error(),
        PostError::TooManyPieces { count: 2, max: 1 }
    );
    let one = pair.a.hold_list(&pieces[1..]).expect("list");
    pair.a
        .post_send(wr::read(one, part(&region, 7, 2)))
        .expect("read");
    drop(pair.retire());
    let mut seen = [0; 2];
    into.read(8, &mut seen).expect("in range");
    assert_eq!(seen, [7, 8]);
    let list = pair.sized(&[8]);
    let rejected = pair.a.post_send(wr::read(list, part(&region, 0, 4)));
    assert_eq!(
        rejected.expect_err("no peer can write it").error(),
        PostError::NeedsShared
    );
}

#[test]
fn too_small_or_divided_lists_are_rejected_and_returned() {
    for profile in PROFILES {
        let (mut pair, region) = setup(profile);
        let list = pair.sized(&[2, 3]);
        let rejected = pair
            .a
            .post_send(wr::read(list, part(&region, 0, 6)))
            .expect_err("small");
        assert_eq!(
            rejected.error(),
            PostError::BeyondLocal { len: 6, local: 5 }
        );
        let list = rejected.into_payload().expect("the rejected list");
        let rejected = pair
            .a
            .post_send(wr::fetch_add(list, part(&region, 0, 8), 1));
        let rejected = rejected.expect_err("smaller than a word");
        assert_eq!(
            rejected.error(),
            PostError::BeyondLocal { len: 8, local: 5 }
        );
        drop(rejected);
        let list = pair.sized(&[4, 4]);
        let rejected = pair
            .a
            .post_send(wr::fetch_add(list, part(&region, 0, 8), 1))
            .expect_err("a divided word");
        assert_eq!(
            rejected.error(),
            PostError::TooManyPieces { count: 2, max: 1 }
        );
    }
}

#[test]
fn results_are_stored_in_a_part_of_a_buffer() {
    for profile in IN_ORDER {
        let (mut pair, region) = setup(profile);
        let record = || {
            let mut record = pair.pd.buf(32).expect("buffer");
            record.fill(0xee);
            record.set_len(24);
            record
        };
        let records = [record(), record(), record()];
        let mut records = records.into_iter().map(|record| {
            let record = record.into_slice(24..32).expect_err("beyond its length");
            record.into_slice(8..16).expect("in range")
        });
        let mut next = || records.next().expect("a record");
        let word = part(&region, 16, 8);
        pair.a
            .post_send(wr::read(next(), part(&region, 32, 6)))
            .expect("read");
        pair.a
            .post_send(wr::fetch_add(next(), word, 1))
            .expect("add");
        pair.a
            .post_send(wr::compare_swap(next(), word, 0, 0))
            .expect("swap");
        let previous = u64::from_ne_bytes([16, 17, 18, 19, 20, 21, 22, 23]);
        let expected = [
            [32, 33, 34, 35, 36, 37, 0xee, 0xee],
            previous.to_ne_bytes(),
            (previous + 1).to_ne_bytes(),
        ];
        let retired = pair.retire().0;
        assert_eq!(retired.len(), 3);
        for (retired, expected) in retired.into_iter().zip(expected) {
            retired.check().expect("success");
            let record = retired.into_buf().expect("the whole buffer");
            assert_eq!(record.len(), 24);
            assert_eq!(record[8..16], expected);
            assert!(
                record[..8]
                    .iter()
                    .chain(&record[16..])
                    .all(|&byte| byte == 0xee)
            );
        }
    }
}

#[test]
fn a_part_of_a_buffer_is_sent() {
    for profile in PROFILES {
        let (mut pair, _region) = setup(profile);
        pair.post_recvs(1);
        let slice = pair.buf(b"a message").into_slice(2..9).expect("in range");
        assert_eq!((slice.len(), slice.is_empty()), (7, false));
        pair.a.post_send(wr::send(slice)).expect("send");
        let (sent, received) = pair.retire();
        let received: Vec<_> = received.into_iter().map(fixture::buf_bytes).collect();
        assert_eq!(received, [b"message"]);
        let sent: Vec<_> = sent.into_iter().map(fixture::buf_bytes).collect();
        assert_eq!(sent, [b"a message"]);
        let slice = pair.buf(b"unused").into_slice(6..6).expect("in range");
        assert!(slice.is_empty());
        assert_eq!(slice.into_buf(), b"unused");
    }
}
