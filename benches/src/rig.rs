//! The benchmark rig: two connected queue pairs of libmlx5, on a model of the adapter. `a` sends
//! and `b` receives.

#![allow(unsafe_code, reason = "C calls the steps of the peer")]

use std::ffi::c_void;
use std::mem::replace;

use ibverbs::{
    AsRaw, Buf, Completion, CompletionQueue, Context, CqOptions, Device, Error, ErrorKind, Frozen,
    GidIndex, Held, Mtu, Pool, QpOptions, QueuePair, Rc, RcPath, Result, Retired, Sink,
    cq_ex::{CompletionQueueEx, CqFields, Enabled},
    wr,
};
use nic_model::{Drive, Options};

/// Requests per batch.
pub(crate) const BATCH: usize = 32;
/// Number of receives posted before a measurement of receives with buffers.
pub(crate) const FIRST_RECEIVES: usize = 8;
/// Message size in bytes, small so that copying the message does not dominate the cost.
pub(crate) const MESSAGE_LEN: u32 = 8;

/// The verbs that post requests and poll for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verbs {
    /// `ibv_post_send` and `ibv_poll_cq`.
    Classic,
    /// `ibv_wr_*` and `ibv_poll_cq`, the default of `ibverbs` if the provider supports `ibv_wr_*`.
    Extended,
    /// `ibv_wr_*`, and `ibv_start_poll` with `ibv_next_poll`, which read the timestamp of each
    /// completion. The entries are copied, and the poll ended, before the program handles them.
    Timestamps,
    /// Like `Timestamps`, but the C and raw programs handle each completion during the poll.
    InPlace,
}

/// A completion queue with timestamps.
pub(crate) type StampedQueue = CompletionQueueEx<CqFields<Enabled>>;

/// The objects that the measured functions use.
#[derive(Debug)]
pub struct Rig {
    /// The sender.
    pub(crate) a: QueuePair<Rc>,
    /// The receiver.
    pub(crate) b: QueuePair<Rc>,
    pub(crate) cq_a: CompletionQueue,
    pub(crate) cq_b: CompletionQueue,
    /// The queues of `a` and `b` with timestamps.
    pub(crate) stamped: [StampedQueue; 2],
    /// `true` if `a` and `b` use `stamped` instead of `cq_a` and `cq_b`.
    pub(crate) uses_stamped: bool,
    /// The timestamp of the last completion.
    pub(crate) timestamp: u64,
    /// Memory that `a` sends.
    pub(crate) source: Held<Frozen>,
    /// Memory that `b` receives into.
    pub(crate) sink: Held<Sink>,
    /// Buffers that are not posted.
    pub(crate) bufs: Vec<Buf>,
    /// Number of requests that a measured function has completed.
    pub(crate) completed: usize,
    /// Number of requests that it posts in each step.
    pub(crate) requests: usize,
    _pool: Pool,
}

/// Starts the model of an adapter, which works only in steps.
pub(crate) fn start_model() -> Result<()> {
    nic_model::start(Options::new().drive(Drive::Step))
        .map_err(|error| Error::new(ErrorKind::Os, "start the model", error.to_string()))
}

impl Rig {
    /// Creates a rig on which the queue pairs and CQs use these verbs.
    ///
    /// # Errors
    /// Fails if the model cannot write its files, or if a verb fails.
    pub fn new(verbs: Verbs) -> Result<Self> {
        start_model()?;
        let context = Device::by_name("mlx5_0")?.open()?;
        let pd = context.alloc_pd()?;
        let options = CqOptions::new().depth(128);
        let (cq_a, cq_b) = (context.create_cq(options)?, context.create_cq(options)?);
        let stamped = [stamped_cq(&context)?, stamped_cq(&context)?];
        let uses_stamped = matches!(verbs, Verbs::Timestamps | Verbs::InPlace);
        let (of_a, of_b) = if uses_stamped {
            (&*stamped[0], &*stamped[1])
        } else {
            (&cq_a, &cq_b)
        };
        let options = QpOptions::new().classic_only(verbs == Verbs::Classic);
        let mut a = pd.create_qp::<Rc>(of_a, of_a, options)?;
        let mut b = pd.create_qp::<Rc>(of_b, of_b, options)?;
        let path = RcPath::new(1, GidIndex(0), Mtu::B1024);
        let (endpoint_a, endpoint_b) = (a.endpoint(&path)?, b.endpoint(&path)?);
        for (qp, peer) in [(&mut a, &endpoint_b), (&mut b, &endpoint_a)] {
            qp.init(&path)?;
            qp.connect(&path, peer)?;
        }
        let pool = pd.pool(BATCH, MESSAGE_LEN as usize)?;
        let source = a.hold(&pd.buf(MESSAGE_LEN as usize)?.freeze())?;
        let sink = b.hold(&pd.sink(MESSAGE_LEN as usize)?)?;
        let bufs = std::iter::from_fn(|| pool.take()).collect();
        Ok(Self {
            a,
            b,
            cq_a,
            cq_b,
            source,
            sink,
            bufs,
            stamped,
            uses_stamped,
            timestamp: 0,
            completed: 0,
            requests: 1,
            _pool: pool,
        })
    }

    /// Replaces the queue pair and the CQ of `a` (`sender`) or `b` by others, without a connection,
    /// and returns them. So they can be borrowed during the steps of the peer, which use the rig.
    pub(crate) fn take(&mut self, sender: bool) -> Result<(QueuePair<Rc>, CompletionQueue)> {
        let (qp, cq) = if sender {
            (&mut self.a, &mut self.cq_a)
        } else {
            (&mut self.b, &mut self.cq_b)
        };
        let spare_cq = qp.pd().context().create_cq(CqOptions::new())?;
        let spare = (qp.pd()).create_qp(&spare_cq, &spare_cq, QpOptions::new())?;
        Ok((replace(qp, spare), replace(cq, spare_cq)))
    }

    /// Posts the first `count` buffers, as receives of `b` or as sends of `a`.
    pub(crate) fn post_first(&mut self, receives: bool, count: usize) -> Result<()> {
        for buf in self.bufs.drain(..count) {
            if receives {
                self.b.post_recv(wr::recv(buf))?;
            } else {
                self.a.post_send(wr::send(buf))?;
            }
        }
        Ok(())
    }

    /// Retires all completions of both queue pairs and keeps their buffers.
    pub(crate) fn retire_all(&mut self) -> Result<()> {
        self.retire_completions(true)?;
        self.retire_completions(false)
    }

    /// Returns the raw handle of the CQ of `a` (`sender`) or `b`.
    pub(crate) fn raw_cq(&self, sender: bool) -> *mut <CompletionQueue as AsRaw>::Raw {
        match (self.uses_stamped, sender) {
            (true, true) => self.stamped[0].as_raw(),
            (true, false) => self.stamped[1].as_raw(),
            (false, true) => self.cq_a.as_raw(),
            (false, false) => self.cq_b.as_raw(),
        }
    }

    /// Retires all completions of `a` (`sender`) or `b` and keeps the buffers. Completions of
    /// requests that the C or raw loop posted are ignored.
    fn retire_completions(&mut self, sender: bool) -> Result<()> {
        let (qp, cq) = if sender {
            (&mut self.a, &mut self.cq_a)
        } else {
            (&mut self.b, &mut self.cq_b)
        };
        let mut retire = |completion: Completion<'_>| {
            let buf = qp.retire(completion).ok().and_then(Retired::into_buf);
            self.bufs.extend(buf);
        };
        loop {
            let count = if self.uses_stamped {
                let completions = self.stamped[usize::from(!sender)].poll()?;
                completions
                    .map(|completion| retire(completion.into()))
                    .count()
            } else {
                cq.poll()?.map(&mut retire).count()
            };
            if count == 0 {
                return Ok(());
            }
        }
    }

    /// The step of the peer of a sender: `b` retires its receives and posts one for each request.
    pub(crate) fn receive(&mut self) -> Result<()> {
        self.retire_completions(false)?;
        for _ in 0..self.requests {
            self.b.post_recv(wr::recv(self.sink))?;
        }
        Ok(())
    }

    /// The step of the peer of a receiver: `a` sends one message.
    pub(crate) fn send(&mut self) -> Result<()> {
        self.retire_completions(true)?;
        Ok(self.a.post_send(wr::send(self.source))?)
    }
}

fn stamped_cq(context: &Context) -> Result<StampedQueue> {
    context.create_cq_ex(CqOptions::new().depth(128), CqFields::new().timestamp())
}

/// A function that runs the step of the peer and of the adapter before each measured step. It
/// aborts the program if the peer fails.
///
/// It is not measured: `instructions` excludes the functions of [`PEER_STEPS`].
pub(crate) type PeerStep = unsafe extern "C" fn(*mut c_void);

macro_rules! peer_steps {
    ($($name:ident($rig:ident) $body:expr;)*) => {
        /// Names of the functions that run a step of the peer, for a profiler.
        pub const PEER_STEPS: &[&str] = &[$(stringify!($name)),*];
        $(
        // SAFETY: no other symbol has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) unsafe extern "C" fn $name(rig: *mut c_void) {
            // SAFETY: every caller passes a pointer to a live rig that is not borrowed.
            let $rig = unsafe { &mut *rig.cast::<Rig>() };
            let result: Result<()> = $body;
            result.expect("a step of the peer");
            nic_model::settle();
        }
    )*};
}

peer_steps! {
    peer_step_receive(rig) rig.receive();
    peer_step_send(rig) rig.send();
    peer_step_nothing(_rig) Ok(());
}
