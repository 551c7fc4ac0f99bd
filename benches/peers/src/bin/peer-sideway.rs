//! The data path of `sideway`, with the classic and with the extended verbs.

use std::hint::black_box;
use std::process::ExitCode;
use std::sync::Arc;

use benches_peers::{DEPTH, MESSAGE_LEN, Peer, Result, Step, Verbs, case, run_case};
use sideway::ibverbs::AccessFlags;
use sideway::ibverbs::address::AddressHandleAttribute;
use sideway::ibverbs::completion::{
    BasicCompletionQueue, CompletionQueueBuilder,
    CreateCompletionQueueWorkCompletionFlags as Fields, ExtendedCompletionQueue,
    GenericCompletionQueue, PollCompletionQueueError, WorkCompletionStatus,
};
use sideway::ibverbs::device::DeviceList;
use sideway::ibverbs::device_context::Mtu;
use sideway::ibverbs::memory_region::MemoryRegion;
use sideway::ibverbs::queue_pair::{
    BasicQueuePair, ExtendedQueuePair, PostSendGuard, QueuePair, QueuePairAttribute,
    QueuePairBuilder, QueuePairState, SetScatterGatherEntry, WorkRequestFlags,
};

/// LID of the port.
const LID: u16 = 1;

/// A kind of completion queue.
trait Cq: Sized {
    fn build(builder: &mut CompletionQueueBuilder) -> Result<Self>;

    fn generic(&self) -> GenericCompletionQueue;

    /// Polls once and checks the status of each completion.
    fn poll(&self, receives: bool) -> Result<usize>;
}

impl Cq for Arc<BasicCompletionQueue> {
    fn build(builder: &mut CompletionQueueBuilder) -> Result<Self> {
        Ok(builder.build()?)
    }

    fn generic(&self) -> GenericCompletionQueue {
        Self::clone(self).into()
    }

    #[inline]
    fn poll(&self, _receives: bool) -> Result<usize> {
        let completions = match self.start_poll() {
            Ok(completions) => completions,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let mut count = 0;
        for completion in completions {
            check(completion.status())?;
            count += 1;
        }
        Ok(count)
    }
}

impl Cq for Arc<ExtendedCompletionQueue> {
    fn build(builder: &mut CompletionQueueBuilder) -> Result<Self> {
        let fields = Fields::StandardFlags | Fields::CompletionTimestamp;
        Ok(builder.setup_wc_flags(fields).build_ex()?)
    }

    fn generic(&self) -> GenericCompletionQueue {
        Self::clone(self).into()
    }

    /// The crate reads neither the queue pair number nor the flags, which the program in C does.
    #[inline]
    fn poll(&self, receives: bool) -> Result<usize> {
        let completions = match self.start_poll() {
            Ok(completions) => completions,
            Err(PollCompletionQueueError::CompletionQueueEmpty) => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        let mut count = 0;
        for completion in completions {
            check(completion.status())?;
            black_box((
                completion.wr_id(),
                completion.opcode(),
                completion.completion_timestamp(),
            ));
            if receives {
                black_box(completion.byte_len());
            }
            count += 1;
        }
        Ok(count)
    }
}

#[inline]
fn check(status: u32) -> Result<()> {
    if status == WorkCompletionStatus::Success as u32 {
        Ok(())
    } else {
        Err("a request failed".into())
    }
}

/// A kind of queue pair.
trait Qp: QueuePair + Sized {
    fn build(builder: &QueuePairBuilder) -> Result<Self>;
}

impl Qp for BasicQueuePair {
    fn build(builder: &QueuePairBuilder) -> Result<Self> {
        Ok(builder.build()?)
    }
}

impl Qp for ExtendedQueuePair {
    fn build(builder: &QueuePairBuilder) -> Result<Self> {
        Ok(builder.build_ex()?)
    }
}

struct Sideway<Q, C> {
    a: Q,
    b: Q,
    cq_a: C,
    cq_b: C,
    region: Arc<MemoryRegion>,
    memory: u64,
    next: u64,
}

impl<Q: Qp, C: Cq> Peer for Sideway<Q, C> {
    const STEPS: &[Step] = &[Step::Send, Step::Batch, Step::Receive];

    fn new() -> Result<Self> {
        let devices = DeviceList::new()?;
        let context = devices.get(0).ok_or("no device")?.open()?;
        let pd = context.alloc_pd()?;
        let new_cq = || C::build(context.create_cq_builder().setup_cqe(128));
        let (cq_a, cq_b) = (new_cq()?, new_cq()?);
        let new_qp = |cq: &C| {
            let mut builder = pd.create_qp_builder();
            builder
                .setup_send_cq(cq.generic())
                .setup_recv_cq(cq.generic())
                .setup_max_send_wr(DEPTH)
                .setup_max_recv_wr(DEPTH);
            Q::build(&builder)
        };
        let (mut a, mut b) = (new_qp(&cq_a)?, new_qp(&cq_b)?);
        let (number_a, number_b) = (a.qp_number(), b.qp_number());
        connect(&mut a, number_b)?;
        connect(&mut b, number_a)?;
        let memory: &mut [u8] = Box::leak(vec![0; MESSAGE_LEN].into_boxed_slice());
        let address = memory.as_mut_ptr().expose_provenance();
        // SAFETY: the memory is never freed, and nothing else uses it.
        let region = unsafe { pd.reg_mr(address, MESSAGE_LEN, AccessFlags::LocalWrite) }?;
        Ok(Self {
            a,
            b,
            cq_a,
            cq_b,
            region,
            memory: address as u64,
            next: 0,
        })
    }

    #[inline]
    fn poll_sends(&mut self) -> Result<usize> {
        self.cq_a.poll(false)
    }

    #[inline]
    fn poll_recvs(&mut self) -> Result<usize> {
        self.cq_b.poll(true)
    }

    #[inline]
    fn send(&mut self, count: usize) -> Result<()> {
        let lkey = self.region.lkey();
        let mut guard = self.a.start_post_send();
        for _ in 0..count {
            self.next += 1;
            let request = guard.construct_wr(self.next, WorkRequestFlags::Signaled);
            // SAFETY: the memory is never freed, and its contents do not matter.
            unsafe {
                request
                    .setup_send()
                    .setup_sge(lkey, self.memory, MESSAGE_LEN as u32)
            };
        }
        Ok(guard.post()?)
    }

    #[inline]
    fn receive(&mut self) -> Result<()> {
        let lkey = self.region.lkey();
        self.next += 1;
        let mut guard = self.b.start_post_recv();
        let request = guard.construct_wr(self.next);
        // SAFETY: as in `send`.
        unsafe { request.setup_sge(lkey, self.memory, MESSAGE_LEN as u32) };
        Ok(guard.post()?)
    }
}

/// Moves a queue pair to RTS.
fn connect(qp: &mut impl QueuePair, peer: u32) -> Result<()> {
    let mut init = QueuePairAttribute::new();
    init.setup_state(QueuePairState::Init)
        .setup_pkey_index(0)
        .setup_port(1)
        .setup_access_flags(AccessFlags::LocalWrite);
    qp.modify(&init)?;
    let mut address = AddressHandleAttribute::new();
    address.setup_dest_lid(LID).setup_port(1);
    let mut rtr = QueuePairAttribute::new();
    rtr.setup_state(QueuePairState::ReadyToReceive)
        .setup_path_mtu(Mtu::Mtu1024)
        .setup_dest_qp_num(peer)
        .setup_rq_psn(0)
        .setup_max_dest_read_atomic(1)
        .setup_min_rnr_timer(12)
        .setup_address_vector(&address);
    qp.modify(&rtr)?;
    let mut rts = QueuePairAttribute::new();
    rts.setup_state(QueuePairState::ReadyToSend)
        .setup_sq_psn(0)
        .setup_timeout(14)
        .setup_retry_cnt(7)
        .setup_rnr_retry(7)
        .setup_max_read_atomic(1);
    Ok(qp.modify(&rts)?)
}

fn main() -> ExitCode {
    run_case(&[
        (
            Verbs::Classic,
            case::<Sideway<BasicQueuePair, Arc<BasicCompletionQueue>>>,
        ),
        (
            Verbs::Extended,
            case::<Sideway<ExtendedQueuePair, Arc<BasicCompletionQueue>>>,
        ),
        (
            Verbs::Timestamps,
            case::<Sideway<ExtendedQueuePair, Arc<ExtendedCompletionQueue>>>,
        ),
    ])
}
