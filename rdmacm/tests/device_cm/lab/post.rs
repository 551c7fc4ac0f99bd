//! A peer that sends and receives datagrams.

use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{
    CompletionQueue, CqOptions, GRH_LEN, ProtectionDomain, QpOptions, QueuePair, Ud,
    wr::{self, Destination},
};

use super::{Endpoint, TIMEOUT};

/// A datagram queue pair and its objects.
pub(crate) struct UdPeer {
    pub(crate) qp: QueuePair<Ud>,
    pub(crate) cq: CompletionQueue,
    pub(crate) pd: ProtectionDomain,
}

impl UdPeer {
    pub(crate) fn new(endpoint: &Endpoint) -> Self {
        let pd = endpoint.context.alloc_pd().expect("protection domain");
        let cq = endpoint
            .context
            .create_cq(CqOptions::new().depth(64))
            .expect("queue");
        let options = QpOptions::new().max_send_wr(16).max_recv_wr(16);
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

    pub(crate) fn send(&mut self, text: &[u8], destination: Destination) {
        let mut message = self.pd.buf(text.len()).expect("buffer");
        message.copy_from_slice(text);
        self.qp
            .post_send(wr::send(message).to(destination).signaled(false))
            .expect("send");
    }

    /// Returns the next datagram. Unsignaled sends complete only if they fail.
    pub(crate) fn next(&mut self) -> Option<(Vec<u8>, ibverbs::UdSource)> {
        let deadline = Instant::now() + TIMEOUT;
        while Instant::now() < deadline {
            if let Some(completion) = self.cq.poll().expect("poll").next() {
                let source = completion.source();
                let retired = self
                    .qp
                    .retire(completion)
                    .expect("a completion of this queue pair");
                retired.check().expect("success");
                return Some((
                    retired.into_buf().expect("the posted buffer")[GRH_LEN..].to_vec(),
                    source,
                ));
            }
            thread::sleep(Duration::from_millis(1));
        }
        None
    }
}
