//! The group, which creates queue pairs and completion queues.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::completion_queue::GroupCompletionQueue;
use crate::cq::CqOptions;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::{ParentDomain, ProtectionDomain};
use crate::qp::{Parts, QpOptions, QueuePair};
use crate::srq::SharedReceiveQueue;
use crate::transport::{Groupable, Grouped};

/// A thread domain for any number of queue pairs and completion queues, which one thread uses.
///
/// It cannot be sent to another thread, and neither can its queues: create a group on each thread.
/// Memory, address handles and shared receive queues come from the [protection domain](Self::pd),
/// which all threads share. The domain exists until the group and its queues are dropped.
///
/// # Example
/// Each thread has a group:
/// ```no_run
/// use ibverbs::group::{Grouped, ThreadGroup};
/// use ibverbs::{CqOptions, QpOptions, QueuePair, Rc};
/// # fn serve(qp: &mut QueuePair<Grouped<Rc>>) -> ibverbs::Result<()> { Ok(()) }
/// let pd = ibverbs::Device::by_name("mlx5_0")?.open()?.alloc_pd()?;
/// std::thread::scope(|scope| {
///     for _ in 0..4 {
///         scope.spawn(|| -> ibverbs::Result<()> {
///             let group = ThreadGroup::new(&pd)?;
///             let mut cq = group.create_cq(CqOptions::default())?;
///             let mut qp = group.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
///             serve(&mut qp)?;
///             cq.poll()?;
///             Ok(())
///         });
///     }
/// });
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "ibv_alloc_td")]
#[doc(alias = "ibv_alloc_parent_domain")]
pub struct ThreadGroup {
    parent: Arc<ParentDomain>,
    one_thread: PhantomData<*const ()>,
}

impl ThreadGroup {
    /// Creates a group for the calling thread.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the provider has no thread domains.
    #[doc(alias = "ibv_alloc_td")]
    #[doc(alias = "ibv_alloc_parent_domain")]
    pub fn new(pd: &ProtectionDomain) -> Result<Self> {
        let parent = pd.alloc_parent_domain(pd.context().alloc_td()?)?;
        Ok(Self {
            parent: Arc::new(parent),
            one_thread: PhantomData,
        })
    }

    /// Returns the protection domain of the group, in which memory is registered.
    pub fn pd(&self) -> &ProtectionDomain {
        self.parent.pd()
    }

    /// Creates a completion queue of the group.
    ///
    /// # Errors
    /// Same as [`Context::create_cq`](crate::Context::create_cq), and [`ErrorKind::Unsupported`] if
    /// the provider cannot create a completion queue in a domain.
    #[doc(alias = "ibv_create_cq_ex")]
    pub fn create_cq(&self, options: CqOptions<'_>) -> Result<GroupCompletionQueue> {
        GroupCompletionQueue::create(&self.parent, options)
    }

    /// Creates a queue pair of the group. See
    /// [`ProtectionDomain::create_qp`](crate::ProtectionDomain::create_qp).
    ///
    /// # Errors
    /// Same as [`ProtectionDomain::create_qp`](crate::ProtectionDomain::create_qp), and
    /// [`ErrorKind::Mismatch`] if a completion queue belongs to another group.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_qp<T: Groupable>(
        &self,
        send_cq: &GroupCompletionQueue,
        recv_cq: &GroupCompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<Grouped<T>>> {
        self.create(send_cq, recv_cq, None, options)
    }

    /// Creates a queue pair of the group that takes its receives from a shared receive queue, which
    /// can belong to another thread. See
    /// [`ProtectionDomain::create_qp_with_srq`](crate::ProtectionDomain::create_qp_with_srq).
    ///
    /// # Errors
    /// Same as [`ProtectionDomain::create_qp_with_srq`](crate::ProtectionDomain::create_qp_with_srq),
    /// and [`ErrorKind::Mismatch`] if a completion queue belongs to another group.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_qp_with_srq<T: Groupable>(
        &self,
        send_cq: &GroupCompletionQueue,
        recv_cq: &GroupCompletionQueue,
        srq: &SharedReceiveQueue,
        options: QpOptions,
    ) -> Result<QueuePair<Grouped<T>>> {
        self.create(send_cq, recv_cq, Some(srq), options)
    }

    fn create<T: Groupable>(
        &self,
        send_cq: &GroupCompletionQueue,
        recv_cq: &GroupCompletionQueue,
        srq: Option<&SharedReceiveQueue>,
        options: QpOptions,
    ) -> Result<QueuePair<Grouped<T>>> {
        if [send_cq, recv_cq].iter().any(|cq| !cq.is_in(&self.parent)) {
            let what = "a completion queue of another group";
            return Err(Error::new(ErrorKind::Mismatch, "ibv_create_qp", what)
                .with_help("create the completion queue with the group of the queue pair"));
        }
        let parts = Parts {
            pd: self.pd(),
            send_cq: send_cq.queue(),
            recv_cq: Some(recv_cq.queue()),
            srq,
            parent: Some(&self.parent),
            streams: None,
        };
        let mut qp = QueuePair::create(&parts, options)?;
        qp.keep(Arc::clone(&self.parent));
        Ok(qp)
    }
}

impl fmt::Debug for ThreadGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadGroup")
            .field("device", &self.pd().context().device_name())
            .finish_non_exhaustive()
    }
}
