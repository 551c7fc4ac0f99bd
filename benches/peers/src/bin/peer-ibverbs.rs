//! The data path of `ibverbs` of another project. It posts one request at a time, with the classic
//! verbs.

use std::process::ExitCode;

use benches_peers::{DEPTH, MESSAGE_LEN, Peer, Result, Step, Verbs, case, run_case};
use ibverbs::{CompletionQueue, Context, MemoryRegion, ProtectionDomain, QueuePair, ibv_wc};

struct Ibverbs {
    a: QueuePair<'static>,
    b: QueuePair<'static>,
    cq_a: &'static CompletionQueue<'static>,
    cq_b: &'static CompletionQueue<'static>,
    source: MemoryRegion<u8>,
    target: MemoryRegion<u8>,
    wc: [ibv_wc; 32],
    next: u64,
}

/// Keeps a value until the program ends. The objects of the crate borrow each other.
fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

#[inline]
fn poll(cq: &CompletionQueue<'_>, wc: &mut [ibv_wc]) -> Result<usize> {
    let completed = cq.poll(wc)?;
    if completed.iter().any(|wc| !wc.is_valid()) {
        return Err("a request failed".into());
    }
    Ok(completed.len())
}

impl Peer for Ibverbs {
    const STEPS: &[Step] = &[Step::Send, Step::Receive];

    fn new() -> Result<Self> {
        let devices = ibverbs::devices()?;
        let context: &Context = keep(devices.get(0).ok_or("no device")?.open()?);
        let pd: &ProtectionDomain<'_> = keep(context.alloc_pd()?);
        let (cq_a, cq_b) = (
            keep(context.create_cq(128, 0)?),
            keep(context.create_cq(128, 1)?),
        );
        let prepare = |cq| {
            let mut builder = pd.create_qp(cq, cq, ibverbs::ibv_qp_type::IBV_QPT_RC);
            let builder = builder.set_max_send_wr(DEPTH).set_max_recv_wr(DEPTH);
            builder.build()
        };
        let (a, b) = (prepare(cq_a)?, prepare(cq_b)?);
        let (endpoint_a, endpoint_b) = (a.endpoint(), b.endpoint());
        Ok(Self {
            a: a.handshake(endpoint_b)?,
            b: b.handshake(endpoint_a)?,
            cq_a,
            cq_b,
            source: pd.allocate(MESSAGE_LEN)?,
            target: pd.allocate(MESSAGE_LEN)?,
            wc: [ibv_wc::default(); 32],
            next: 0,
        })
    }

    #[inline]
    fn poll_sends(&mut self) -> Result<usize> {
        poll(self.cq_a, &mut self.wc)
    }

    #[inline]
    fn poll_recvs(&mut self) -> Result<usize> {
        poll(self.cq_b, &mut self.wc)
    }

    #[inline]
    fn send(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.next += 1;
            // SAFETY: the memory lives as long as the queue pairs, and its contents do not matter.
            unsafe { self.a.post_send(&mut self.source, .., self.next) }?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        self.next += 1;
        // SAFETY: as in `send`.
        Ok(unsafe { self.b.post_receive(&mut self.target, .., self.next) }?)
    }
}

fn main() -> ExitCode {
    run_case(&[(Verbs::Classic, case::<Ibverbs>)])
}
