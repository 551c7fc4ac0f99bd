//! Completion counters: numbers of completions, without an entry for each.
//!
//! They need rdma-core 65 and a device that has them, such as EFA.

#![allow(unsafe_code)]

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use bitflags::bitflags;
use rdma_sys::{
    IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ, IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE,
    IBV_QP_ATTACH_COMP_CNTR_OP_RECV, IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ,
    IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE, IBV_QP_ATTACH_COMP_CNTR_OP_SEND, ibv_comp_cntr,
    ibv_comp_cntr_caps, ibv_comp_cntr_init_attr, ibv_create_comp_cntr, ibv_destroy_comp_cntr,
    ibv_inc_comp_cntr, ibv_inc_err_comp_cntr, ibv_query_comp_cntr_caps, ibv_read_comp_cntr,
    ibv_read_err_comp_cntr, ibv_set_comp_cntr, ibv_set_err_comp_cntr,
};
use rdma_types::c_value;

use crate::convert::{non_null, zero_or_errno};
use crate::device::Context;
use crate::error::Result;
use crate::raw::{AsRaw, as_raw};

c_value! {
    /// The unit of a completion counter (`enum ibv_comp_cntr_type`). Few devices have all.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
    /// use ibverbs::counter::CounterKind;
    /// let requests = context.create_counter(CounterKind::REQUESTS)?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_create_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_create_comp_cntr")]
    pub struct CounterKind(u32) {
        /// Counts work requests: `IBV_COMP_CNTR_TYPE_WRS`.
        REQUESTS = rdma_sys::IBV_COMP_CNTR_TYPE_WRS => "requests",
        /// Counts bytes: `IBV_COMP_CNTR_TYPE_BYTES`.
        BYTES = rdma_sys::IBV_COMP_CNTR_TYPE_BYTES => "bytes",
    }
}

bitflags! {
    /// Operations that a counter counts at a queue pair (`enum ibv_qp_attach_comp_cntr_op`).
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::counter::CounterOps;
    /// # let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
    /// let reads = context.query_counter_caps()?.ops.contains(CounterOps::REMOTE_RDMA_READ);
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_qp_attach_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_qp_attach_comp_cntr.3.md)
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct CounterOps: u32 {
        /// Sends.
        const SEND = IBV_QP_ATTACH_COMP_CNTR_OP_SEND;
        /// Receives.
        const RECV = IBV_QP_ATTACH_COMP_CNTR_OP_RECV;
        /// RDMA reads of this side.
        const RDMA_READ = IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_READ;
        /// RDMA reads of peers.
        const REMOTE_RDMA_READ = IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_READ;
        /// RDMA writes of this side.
        const RDMA_WRITE = IBV_QP_ATTACH_COMP_CNTR_OP_RDMA_WRITE;
        /// RDMA writes of peers.
        const REMOTE_RDMA_WRITE = IBV_QP_ATTACH_COMP_CNTR_OP_REMOTE_RDMA_WRITE;
        const _ = !0;
    }
}

/// Limits of the completion counters of a device (`struct ibv_comp_cntr_caps`).
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
/// let caps = context.query_counter_caps()?;
/// println!("{} counters up to {}", caps.max_counters, caps.max_value);
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_query_comp_cntr_caps(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_query_comp_cntr_caps.3.md)
#[doc(alias = "ibv_query_comp_cntr_caps")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CounterCaps {
    /// Largest value of a count. The next one is 0.
    pub max_value: u64,
    /// Maximum number of counters.
    pub max_counters: u32,
    /// Operations that can be counted.
    pub ops: CounterOps,
}

/// Two counts: requests that succeeded, and requests that failed. Clones refer to the same counter.
///
/// A queue pair changes them after the counter was
/// [attached](crate::QueuePair::attach_counter) to it, and keeps the counter alive. Its requests
/// still have completions.
///
/// # Example
/// ```no_run
/// use ibverbs::counter::{CounterKind, CounterOps};
/// # use ibverbs::{CqOptions, DatagramAttr, Qkey, QpOptions, efa::Srd};
/// # let context = ibverbs::Device::by_name("rdmap0s31")?.open()?;
/// # let (pd, cq) = (context.alloc_pd()?, context.create_cq(CqOptions::default())?);
/// let received = context.create_counter(CounterKind::REQUESTS)?;
/// let mut qp = pd.create_qp::<Srd>(&cq, &cq, QpOptions::default())?;
/// qp.attach_counter(&received, CounterOps::RECV)?;
/// qp.start(&DatagramAttr::new(1, Qkey(0x1111_1111)))?;
/// // later, on any thread
/// println!("{} messages, {} failures", received.successes()?, received.failures()?);
/// # Ok::<(), ibverbs::Error>(())
/// ```
///
/// # References
/// [`ibv_create_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
#[doc(alias = "ibv_create_comp_cntr")]
#[derive(Clone)]
pub struct CompletionCounter(Arc<CreatedCounter>);

struct CreatedCounter {
    raw: NonNull<ibv_comp_cntr>,
    kind: CounterKind,
    context: Context,
}

// SAFETY: the counter is a handle. Its functions are system calls, or read a word of memory that
// the device writes.
unsafe impl Send for CreatedCounter {}
// SAFETY: as for Send.
unsafe impl Sync for CreatedCounter {}

impl Drop for CreatedCounter {
    fn drop(&mut self) {
        // SAFETY: this is the last reference: each queue pair that the counter is attached to holds
        // one until it is destroyed.
        if unsafe { ibv_destroy_comp_cntr(self.raw.as_ptr()) } != 0 {
            crate::leak::with_parent(&self.context);
        }
    }
}

impl Context {
    /// Queries the limits of the completion counters.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device or the installed
    /// rdma-core has none.
    ///
    /// # References
    /// [`ibv_query_comp_cntr_caps(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_query_comp_cntr_caps.3.md)
    #[doc(alias = "ibv_query_comp_cntr_caps")]
    pub fn query_counter_caps(&self) -> Result<CounterCaps> {
        let mut raw = ibv_comp_cntr_caps::default();
        // SAFETY: the context is open and the structure is writable.
        let returned = unsafe { ibv_query_comp_cntr_caps(self.as_raw(), &raw mut raw) };
        let what = || self.device_name().into();
        zero_or_errno("ibv_query_comp_cntr_caps", what, returned)?;
        Ok(CounterCaps {
            max_value: raw.max_value,
            max_counters: raw.max_counters,
            ops: CounterOps::from_bits_retain(raw.supported_qp_attach_ops),
        })
    }

    /// Creates a completion counter. Both counts are 0.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device or the installed
    /// rdma-core has no counters of this kind.
    ///
    /// # References
    /// [`ibv_create_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_create_comp_cntr")]
    pub fn create_counter(&self, kind: CounterKind) -> Result<CompletionCounter> {
        let mut attr = ibv_comp_cntr_init_attr {
            type_: kind.0,
            ..Default::default()
        };
        let what = || format!("a counter of {kind} on {}", self.device_name());
        let raw = non_null("ibv_create_comp_cntr", what, || {
            // SAFETY: the context is open, and the attributes are valid during the call.
            unsafe { ibv_create_comp_cntr(self.as_raw(), &raw mut attr) }
        })?;
        Ok(CompletionCounter(Arc::new(CreatedCounter {
            raw,
            kind,
            context: self.clone(),
        })))
    }
}

impl CompletionCounter {
    /// Returns the number of requests, or of bytes, that completed successfully.
    ///
    /// A change takes a moment to become visible.
    ///
    /// # Errors
    /// Fails if the device was removed.
    ///
    /// # References
    /// [`ibv_read_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_read_comp_cntr")]
    pub fn successes(&self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: the counter is alive and the number is writable.
        let returned = unsafe { ibv_read_comp_cntr(self.as_raw(), &raw mut value) };
        self.check("ibv_read_comp_cntr", returned)?;
        Ok(value)
    }

    /// Returns the number of requests, or of bytes, that completed with an error.
    ///
    /// # Errors
    /// Those of [`successes`](Self::successes).
    ///
    /// # References
    /// [`ibv_read_err_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_read_err_comp_cntr")]
    pub fn failures(&self) -> Result<u64> {
        let mut value = 0;
        // SAFETY: the counter is alive and the number is writable.
        let returned = unsafe { ibv_read_err_comp_cntr(self.as_raw(), &raw mut value) };
        self.check("ibv_read_err_comp_cntr", returned)?;
        Ok(value)
    }

    /// Sets the count of successes. Requests that complete at the same time may not be counted.
    ///
    /// # Errors
    /// Fails if the value is larger than [`CounterCaps::max_value`].
    ///
    /// # References
    /// [`ibv_set_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_set_comp_cntr")]
    pub fn set_successes(&self, value: u64) -> Result<()> {
        // SAFETY: the counter is alive.
        let returned = unsafe { ibv_set_comp_cntr(self.as_raw(), value) };
        self.check("ibv_set_comp_cntr", returned)
    }

    /// Sets the count of failures. See [`set_successes`](Self::set_successes).
    ///
    /// # Errors
    /// Those of [`set_successes`](Self::set_successes).
    ///
    /// # References
    /// [`ibv_set_err_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_set_err_comp_cntr")]
    pub fn set_failures(&self, value: u64) -> Result<()> {
        // SAFETY: the counter is alive.
        let returned = unsafe { ibv_set_err_comp_cntr(self.as_raw(), value) };
        self.check("ibv_set_err_comp_cntr", returned)
    }

    /// Adds to the count of successes. Requests that complete at the same time are counted too.
    ///
    /// # Errors
    /// Those of [`set_successes`](Self::set_successes).
    ///
    /// # References
    /// [`ibv_inc_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_inc_comp_cntr")]
    pub fn add_successes(&self, amount: u64) -> Result<()> {
        // SAFETY: the counter is alive.
        let returned = unsafe { ibv_inc_comp_cntr(self.as_raw(), amount) };
        self.check("ibv_inc_comp_cntr", returned)
    }

    /// Adds to the count of failures.
    ///
    /// # Errors
    /// Those of [`set_successes`](Self::set_successes).
    ///
    /// # References
    /// [`ibv_inc_err_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_create_comp_cntr.3.md)
    #[doc(alias = "ibv_inc_err_comp_cntr")]
    pub fn add_failures(&self, amount: u64) -> Result<()> {
        // SAFETY: the counter is alive.
        let returned = unsafe { ibv_inc_err_comp_cntr(self.as_raw(), amount) };
        self.check("ibv_inc_err_comp_cntr", returned)
    }

    /// Returns what is counted.
    pub fn kind(&self) -> CounterKind {
        self.0.kind
    }

    /// Returns the open device.
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    fn check(&self, verb: &'static str, returned: i32) -> Result<()> {
        zero_or_errno(verb, || self.0.context.device_name().into(), returned)
    }
}

as_raw!(CompletionCounter: ibv_comp_cntr, 0.raw);

impl fmt::Debug for CompletionCounter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionCounter")
            .field("kind", &self.0.kind)
            .field("device", &self.0.context.device_name())
            .finish()
    }
}
