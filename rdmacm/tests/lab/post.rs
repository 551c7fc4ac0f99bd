//! An end for datagrams.

use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    CompletionQueue, CqOptions, GRH_LEN, ProtectionDomain, QpOptions, QueuePair, Ud,
    wr::{self, Destination},
};

use super::{PATIENCE, Place};

/// A datagram queue pair and what it stands on.
pub(crate) struct Post {
    pub(crate) qp: QueuePair<Ud>,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
}

impl Post {
    pub(crate) fn new(place: &Place) -> Self {
        let pd = place.context.alloc_pd().expect("domain");
        let cq = place
            .context
            .create_cq(CqOptions {
                depth: 64,
                ..CqOptions::default()
            })
            .expect("queue");
        let options = QpOptions {
            max_send_wr: 16,
            max_recv_wr: 16,
            ..QpOptions::default()
        };
        Self {
            qp: pd.create_qp::<Ud>(&cq, &cq, options).expect("queue pair"),
            cq,
            pd,
        }
    }

    pub(crate) fn receive(&mut self, count: usize) {
        for _ in 0..count {
            let buf = self.pd.buf(GRH_LEN + 64).expect("buffer");
            self.qp.post_recv(wr::recv(buf)).expect("receive");
        }
    }

    pub(crate) fn send(&mut self, text: &[u8], to: Destination) {
        let mut message = self.pd.buf(text.len()).expect("buffer");
        message.copy_from_slice(text);
        self.qp
            .post_send(wr::send_to(message, to).unsignaled())
            .expect("send");
    }

    /// The next datagram that arrives; unsignalled sends show only when they fail.
    pub(crate) fn next(&mut self) -> Option<(Vec<u8>, ibverbs::UdSource)> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                let source = completion.source();
                let got = self.qp.retire(completion).expect("mine");
                got.ok().expect("success");
                return Some((
                    got.into_buf().expect("posted with one")[GRH_LEN..].to_vec(),
                    source,
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }
}
