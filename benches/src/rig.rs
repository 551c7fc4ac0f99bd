//! Two connected queue pairs on a fake device: `a` sends, `b` receives.

#![allow(unsafe_code, reason = "what the other end does is called from C too")]

use std::ffi::{c_int, c_void};

use fake_provider::{Fake, Profile};
use ibverbs::{
    AsRaw, Buf, CompletionQueue, CqOptions, Device, Frozen, GidIndex, Held, Mtu, Pool, QpOptions,
    QueuePair, Rc, RcPath, Result, Retired, Sink,
    cq_ex::{CompletionQueueEx, CqFields},
    wr,
};

/// Requests of a batch.
pub(crate) const BATCH: usize = 32;
/// Receives that are posted at once.
pub(crate) const AHEAD: usize = 8;
/// Bytes of a message: few, so that copying them does not hide what is measured.
pub(crate) const LENGTH: u32 = 8;

/// Which verbs are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `ibv_post_send`, `ibv_poll_cq`.
    Classic,
    /// `ibv_wr_*`, `ibv_poll_cq`: what a queue pair and a completion queue do by default, where the
    /// provider can.
    Extended,
    /// `ibv_wr_*`, `ibv_start_poll` …
    ExtendedPoll,
}

/// What the loops work on.
#[derive(Debug)]
pub struct Rig {
    pub(crate) a: QueuePair<Rc>,
    pub(crate) b: QueuePair<Rc>,
    pub(crate) cq_a: CompletionQueue,
    pub(crate) cq_b: CompletionQueue,
    /// In place of these where the extended verbs poll.
    pub(crate) cq_ex_a: CompletionQueueEx,
    pub(crate) cq_ex_b: CompletionQueueEx,
    pub(crate) source: Held<Frozen>,
    pub(crate) sink: Held<Sink>,
    pub(crate) bufs: Vec<Buf>,
    pub(crate) extended_cq: bool,
    _pool: Pool,
    _fake: Fake,
}

impl Rig {
    /// A rig for this form of the data path.
    ///
    /// # Errors
    /// None is expected of a fake device.
    pub fn new(form: Form) -> Result<Self> {
        let (extended_qp, extended_cq) = (form != Form::Classic, form == Form::ExtendedPoll);
        let fake = Fake::new(Profile {
            extended_qp,
            ..Profile::RXE
        });
        let context = Device::by_name(fake.name())?.open()?;
        let pd = context.alloc_pd()?;
        let options = CqOptions {
            depth: 128,
            ..CqOptions::default()
        };
        let (cq_a, cq_b) = (context.create_cq(options)?, context.create_cq(options)?);
        let cq_ex_a = context.create_cq_ex(options, CqFields::new())?;
        let cq_ex_b = context.create_cq_ex(options, CqFields::new())?;
        let (used_a, used_b) = if extended_cq {
            (&*cq_ex_a, &*cq_ex_b)
        } else {
            (&cq_a, &cq_b)
        };
        let mut a = pd.create_qp::<Rc>(used_a, used_a, QpOptions::default())?;
        let mut b = pd.create_qp::<Rc>(used_b, used_b, QpOptions::default())?;
        let path = RcPath::new(1, GidIndex(0), Mtu::B1024);
        let ends = [a.endpoint(&path)?, b.endpoint(&path)?];
        for (qp, peer) in [(&mut a, &ends[1]), (&mut b, &ends[0])] {
            qp.init(&path)?;
            qp.connect(&path, peer)?;
        }
        let pool = pd.pool(BATCH, LENGTH as usize)?;
        let source = a.hold(&pd.buf(LENGTH as usize)?.freeze())?;
        let sink = b.hold(&pd.sink(LENGTH as usize)?)?;
        let bufs = std::iter::from_fn(|| pool.take()).collect();
        Ok(Self {
            a,
            b,
            cq_a,
            cq_b,
            cq_ex_a,
            cq_ex_b,
            source,
            sink,
            bufs,
            extended_cq,
            _pool: pool,
            _fake: fake,
        })
    }

    /// Posts buffers, the first of those that are posted again as they come back.
    pub(crate) fn begin(&mut self, receives: bool, count: usize) -> Result<()> {
        for buf in self.bufs.drain(..count) {
            if receives {
                self.b.post_recv(wr::recv(buf))?;
            } else {
                self.a.post_send(wr::send(buf))?;
            }
        }
        Ok(())
    }

    /// Takes back the buffers of what has completed on either side.
    pub(crate) fn end(&mut self) -> Result<()> {
        retire_all(
            &mut self.cq_a,
            &mut self.cq_ex_a,
            &mut self.a,
            &mut self.bufs,
        )?;
        retire_all(
            &mut self.cq_b,
            &mut self.cq_ex_b,
            &mut self.b,
            &mut self.bufs,
        )
    }

    /// The raw handle of the queue that `a` or `b` completes on.
    pub(crate) fn raw_cq(&self, sends: bool) -> *mut <CompletionQueue as AsRaw>::Raw {
        match (self.extended_cq, sends) {
            (false, true) => self.cq_a.as_raw(),
            (false, false) => self.cq_b.as_raw(),
            (true, true) => self.cq_ex_a.as_raw(),
            (true, false) => self.cq_ex_b.as_raw(),
        }
    }

    /// The other side of sends: `b` takes what came and posts receives for `count` more.
    fn receiver(&mut self, count: usize) -> Result<()> {
        retire_all(
            &mut self.cq_b,
            &mut self.cq_ex_b,
            &mut self.b,
            &mut self.bufs,
        )?;
        for _ in 0..count {
            self.b.post_recv(wr::recv(self.sink))?;
        }
        Ok(())
    }

    /// The other side of receives: `a` sends one message.
    pub(crate) fn sender(&mut self) -> Result<()> {
        retire_all(
            &mut self.cq_a,
            &mut self.cq_ex_a,
            &mut self.a,
            &mut self.bufs,
        )?;
        Ok(self.a.post_send(wr::send(self.source))?)
    }
}

/// Takes what has completed on one of two queues, and the buffers back. What the C loop posted is
/// none of the safe side's.
fn retire_all(
    cq: &mut CompletionQueue,
    cq_ex: &mut CompletionQueueEx,
    qp: &mut QueuePair<Rc>,
    bufs: &mut Vec<Buf>,
) -> Result<()> {
    loop {
        let completions = cq.poll()?;
        let mut count = completions.len();
        for completion in completions {
            bufs.extend(qp.retire(completion).ok().and_then(Retired::into_buf));
        }
        count += cq_ex.poll_each(|completion| -> Result<()> {
            bufs.extend(
                qp.retire_in_place(completion)
                    .ok()
                    .and_then(Retired::into_buf),
            );
            Ok(())
        })?;
        if count == 0 {
            return Ok(());
        }
    }
}

/// What the other end of the connection does before each step: 0, or something failed. Not
/// measured: a profiler knows these functions by the beginning of their names.
pub(crate) type Aside = unsafe extern "C" fn(*mut c_void) -> c_int;

macro_rules! asides {
    ($($name:ident($rig:ident) $body:expr;)*) => {$(
        // SAFETY: no other function has this name.
        #[unsafe(no_mangle)]
        #[inline(never)]
        pub(crate) unsafe extern "C" fn $name(rig: *mut c_void) -> c_int {
            // SAFETY: the caller lends the rig.
            let $rig = unsafe { &mut *rig.cast::<Rig>() };
            let result: Result<()> = $body;
            c_int::from(result.is_err())
        }
    )*};
}

asides! {
    aside_receive(rig) rig.receiver(1);
    aside_receive_batch(rig) rig.receiver(BATCH);
    aside_send(rig) rig.sender();
    aside_nothing(_rig) Ok(());
}
