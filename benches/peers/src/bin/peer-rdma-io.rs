//! The data path of `rdma-io`. It posts one request at a time, with the classic verbs.

use std::process::ExitCode;
use std::sync::Arc;

use benches_peers::{DEPTH, MESSAGE_LEN, Peer, Result, Step, Verbs, case, run_case};
use rdma_io::cq::CompletionQueue;
use rdma_io::device::open_device_by_name;
use rdma_io::mr::{AccessFlags, OwnedMemoryRegion};
use rdma_io::qp::{QpInitAttr, QueuePair};
use rdma_io::wc::WorkCompletion;
use rdma_io::wr::{RecvWr, SendFlags, SendWr, Sge, WrOpcode};

struct RdmaIo {
    a: QueuePair,
    b: QueuePair,
    cq_a: Arc<CompletionQueue>,
    cq_b: Arc<CompletionQueue>,
    memory: OwnedMemoryRegion,
    wc: [WorkCompletion; 32],
    next: u64,
}

impl RdmaIo {
    #[inline]
    fn sge(&self) -> Sge {
        Sge::new(self.memory.addr(), MESSAGE_LEN as u32, self.memory.lkey())
    }
}

#[inline]
fn poll(cq: &CompletionQueue, wc: &mut [WorkCompletion]) -> Result<usize> {
    let count = cq.poll(wc)?;
    if wc.iter().take(count).any(|wc| !wc.is_success()) {
        return Err("a request failed".into());
    }
    Ok(count)
}

impl Peer for RdmaIo {
    const STEPS: &[Step] = &[Step::Send, Step::Receive];

    fn new() -> Result<Self> {
        let context = Arc::new(open_device_by_name("mlx5_0")?);
        let pd = context.alloc_pd()?;
        let (cq_a, cq_b) = (context.create_cq(128)?, context.create_cq(128)?);
        let attr = QpInitAttr {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            sq_sig_all: false,
            ..QpInitAttr::default()
        };
        let (a, b) = (
            pd.create_qp(&cq_a, &cq_a, &attr)?,
            pd.create_qp(&cq_b, &cq_b, &attr)?,
        );
        let gid = context.query_gid(1, 0)?;
        for (qp, peer) in [(&a, &b), (&b, &a)] {
            qp.to_init(1, 0, 0)?;
            qp.to_rtr(peer.qp_num(), 0, &gid, 1)?;
            qp.to_rts(0)?;
        }
        let memory = pd.reg_mr_owned(vec![0; MESSAGE_LEN], AccessFlags::LOCAL_WRITE)?;
        Ok(Self {
            a,
            b,
            cq_a,
            cq_b,
            memory,
            wc: [WorkCompletion::default(); 32],
            next: 0,
        })
    }

    #[inline]
    fn poll_sends(&mut self) -> Result<usize> {
        poll(&self.cq_a, &mut self.wc)
    }

    #[inline]
    fn poll_recvs(&mut self) -> Result<usize> {
        poll(&self.cq_b, &mut self.wc)
    }

    #[inline]
    fn send(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.next += 1;
            let request = SendWr::new(self.next, WrOpcode::Send);
            let request = request.flags(SendFlags::SIGNALED).sg(self.sge());
            self.a.post_send(&mut { request })?;
        }
        Ok(())
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        self.next += 1;
        let mut request = RecvWr::new(self.next).sg(self.sge());
        Ok(self.b.post_recv(&mut request)?)
    }
}

fn main() -> ExitCode {
    run_case(&[(Verbs::Classic, case::<RdmaIo>)])
}
