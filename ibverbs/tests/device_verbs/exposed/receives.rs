//! Receives that are written into a shared receive queue.

use ibverbs::{Error, Held, Rc, SrqOptions, wr};

use super::by_hand::write_receives;
use super::ends::{ACCESS, End};
use crate::lab::{connect, devices_with, installed_version, path, until, verb};

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn receives_written_by_hand_complete_in_a_shared_queue() {
    const ROUNDS: usize = 50;
    for context in devices_with(&[verb::LEND]) {
        let pd = context.alloc_pd().expect("protection domain");
        for max_sge in [1, 3] {
            let options = SrqOptions::new().max_wr(8).max_sge(max_sge).max_batch(8);
            let mut srq = pd.create_srq(options).expect("queue");
            let region = pd.shared(4096, ACCESS).expect("region");
            let memory = srq.hold(&region).expect("held");
            let mut a = End::<Rc>::new(&pd);
            let mut b = End::with(&pd, |sends, receives, options| {
                pd.create_qp_with_srq(sends, receives, &srq, options)
            });
            connect(&mut a.qp, &mut b.qp, &path(&context));
            let (mut posted, mut by_hand) = (0, 0);
            for round in 0..ROUNDS {
                let count = 1 + round % 5;
                posted += count;
                let pieces: Vec<_> = (0..count)
                    .map(|index| memory.slice(index * 64..index * 64 + 64).expect("inside"))
                    .collect();
                // Before and after the library counts the receives.
                let (early, late) = (format!("early {round}"), format!("late {round}"));
                // SAFETY: the closure writes the first receives of the batch.
                let written = unsafe {
                    srq.expose_queue(|exposed, batch| {
                        for (tag, &piece) in (0..).zip(&pieces) {
                            batch.recv(wr::recv(piece).tag(tag))?;
                        }
                        let memory: Vec<_> = pieces.iter().map(Held::sge).collect();
                        let count = memory.len().min(exposed.free_entries());
                        if count > 0 {
                            write_receives(exposed.queue(), &memory[..count]);
                            a.qp.post_send(wr::send(wr::Inline(early.as_bytes())))?;
                            a.retire(1);
                        }
                        Ok::<_, Error>(count)
                    })
                }
                .expect("exposed");
                by_hand += written;
                let early_count = written.min(1);
                for _ in early_count..count {
                    a.qp.post_send(wr::send(wr::Inline(late.as_bytes())))
                        .expect("send");
                    a.retire(1);
                }
                for tag in 0..count {
                    let mut received = None;
                    until("the message", || {
                        let completion = b.receives.poll().expect("poll").next();
                        received = completion.map(|one| srq.retire(one).expect("in flight"));
                        received.is_some()
                    });
                    let received = received.expect("set above");
                    assert_eq!(received.tag(), tag as u64);
                    let expected = if tag < early_count { &early } else { &late };
                    let mut bytes = vec![0; received.received_len()];
                    region.read(tag * 64, &mut bytes).expect("inside");
                    assert_eq!(bytes, expected.as_bytes());
                }
            }
            assert_eq!(srq.recv_slots_free(), srq.recv_capacity() as usize);
            println!("{by_hand} of {posted} receives were written by hand");
            // Newer versions of libmlx5 do not keep all free entries linked.
            assert!(by_hand >= 15 && (installed_version() > 44 || by_hand == posted));
        }
    }
}
