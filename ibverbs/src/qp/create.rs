//! Methods that create queue pairs.

use std::sync::Arc;

use super::builder::{self, Parts};
use super::options::QpOptions;
use super::pair::QueuePair;
use crate::cq::CompletionQueue;
use crate::error::Result;
use crate::pd::{ParentDomain, ProtectionDomain};
use crate::srq::SharedReceiveQueue;
use crate::transport::{DuplexTransport, SendTransport, XrcSend};
use crate::wr::Owner;

impl ProtectionDomain {
    /// Creates a queue pair of transport `T`, in state RESET.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`](crate::ErrorKind::InvalidInput) if a size exceeds the device's
    /// limit, [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if a completion queue belongs to
    /// another device.
    ///
    /// # Example
    /// ```no_run
    /// # let context = ibverbs::Device::by_name("rxe0")?.open()?;
    /// use ibverbs::{CqOptions, QpOptions, Rc};
    /// let pd = context.alloc_pd()?;
    /// let (sends, receives) = (
    ///     context.create_cq(CqOptions::default())?,
    ///     context.create_cq(CqOptions::default())?,
    /// );
    /// let qp = pd.create_qp::<Rc>(
    ///     &sends,
    ///     &receives,
    ///     QpOptions::new().max_send_wr(128),
    /// )?;
    /// println!(
    ///     "{} holds {} sends in flight",
    ///     qp.qp_num(),
    ///     qp.caps().max_send_wr
    /// );
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_qp")]
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_qp<T: DuplexTransport>(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<T>> {
        QueuePair::create(
            &Parts {
                pd: self,
                send_cq,
                recv_cq: Some(recv_cq),
                srq: None,
                parent: None,
                streams: None,
            },
            options,
        )
    }

    /// Creates a queue pair that takes its receives from a shared receive queue.
    /// `options.max_recv_wr` is ignored.
    ///
    /// # Errors
    /// Same as [`create_qp`](Self::create_qp), and
    /// [`ErrorKind::Mismatch`](crate::ErrorKind::Mismatch) if the shared receive queue belongs
    /// to another protection domain.
    ///
    /// # Example
    /// ```no_run
    /// # let pd = ibverbs::Device::by_name("rxe0")?.open()?.alloc_pd()?;
    /// # let cq = pd.context().create_cq(ibverbs::CqOptions::default())?;
    /// use ibverbs::{QpOptions, Rc, SrqOptions};
    /// let srq = pd.create_srq(SrqOptions::default())?;
    /// let clients = (0..8)
    ///     .map(|_| pd.create_qp_with_srq::<Rc>(&cq, &cq, &srq, QpOptions::default()))
    ///     .collect::<ibverbs::Result<Vec<_>>>()?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_create_qp")]
    pub fn create_qp_with_srq<T: DuplexTransport>(
        &self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        options: QpOptions,
    ) -> Result<QueuePair<T>> {
        QueuePair::create(
            &Parts {
                pd: self,
                send_cq,
                recv_cq: Some(recv_cq),
                srq: Some(srq),
                parent: None,
                streams: None,
            },
            options,
        )
    }

    /// Creates the sending half of an extended reliable connection, in state RESET. Its peer is an
    /// [`XrcRecvQueuePair`](crate::xrc::XrcRecvQueuePair), and each request names one of the peer's
    /// shared receive queues. The receive sizes of `options` are ignored.
    ///
    /// # Errors
    /// Same as [`create_qp`](Self::create_qp), and
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the device has no XRC. Neither
    /// Soft-RoCE nor Soft-iWARP has it.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{CompletionQueue, Context, Endpoint, Error, QpOptions, RcPath, wr, xrc::SrqNum};
    /// # fn f(context: Context, mut cq: CompletionQueue, path: RcPath, peer: Endpoint, srq: SrqNum) -> Result<(), Error> {
    /// let pd = context.alloc_pd()?;
    /// let mut qp = pd.create_xrc_send_qp(&cq, QpOptions::default())?;
    /// qp.init(&path)?;
    /// qp.connect(&path, &peer)?; // the endpoint of the peer's receiving half
    /// qp.post_send(wr::send(pd.buf(64)?).for_srq(srq))?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_create_qp_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_qp_ex.3.html); IBA annex A14
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_xrc_send_qp(
        &self,
        send_cq: &CompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<XrcSend>> {
        QueuePair::create(
            &Parts {
                pd: self,
                send_cq,
                recv_cq: None,
                srq: None,
                parent: None,
                streams: None,
            },
            options,
        )
    }
}

/// Each method consumes the parent domain, because a thread domain belongs to one queue pair.
impl ParentDomain {
    /// Creates a queue pair in the thread domain, like [`ProtectionDomain::create_qp`].
    ///
    /// # Errors
    /// Same as the method of the same name of [`ProtectionDomain`]. The parent domain is then
    /// dropped.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_qp<T: DuplexTransport>(
        self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<T>> {
        create_in(self, send_cq, Some(recv_cq), None, options)
    }

    /// Creates a queue pair in the thread domain, like [`ProtectionDomain::create_qp_with_srq`].
    /// The shared receive queue must belong to the [protection domain](Self::pd).
    ///
    /// # Errors
    /// Same as the method of the same name of [`ProtectionDomain`]. The parent domain is then
    /// dropped.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_qp_with_srq<T: DuplexTransport>(
        self,
        send_cq: &CompletionQueue,
        recv_cq: &CompletionQueue,
        srq: &SharedReceiveQueue,
        options: QpOptions,
    ) -> Result<QueuePair<T>> {
        create_in(self, send_cq, Some(recv_cq), Some(srq), options)
    }

    /// Creates the sending half of an extended reliable connection in the thread domain, like
    /// [`ProtectionDomain::create_xrc_send_qp`].
    ///
    /// # Errors
    /// Same as the method of the same name of [`ProtectionDomain`]. The parent domain is then
    /// dropped.
    #[doc(alias = "ibv_create_qp_ex")]
    pub fn create_xrc_send_qp(
        self,
        send_cq: &CompletionQueue,
        options: QpOptions,
    ) -> Result<QueuePair<XrcSend>> {
        create_in(self, send_cq, None, None, options)
    }
}

fn create_in<T: SendTransport>(
    parent: ParentDomain,
    send_cq: &CompletionQueue,
    recv_cq: Option<&CompletionQueue>,
    srq: Option<&SharedReceiveQueue>,
    options: QpOptions,
) -> Result<QueuePair<T>> {
    let mut qp = QueuePair::create(
        &Parts {
            pd: parent.pd(),
            send_cq,
            recv_cq,
            srq,
            parent: Some(&parent),
            streams: None,
        },
        options,
    )?;
    qp.keep(Arc::new(parent));
    Ok(qp)
}

impl<T: SendTransport> QueuePair<T> {
    pub(crate) fn create(parts: &Parts<'_>, options: QpOptions) -> Result<Self> {
        let mut numbers = parts.pd.context().lock_numbers();
        // Queue pairs that are kept until one has a number of its own.
        let mut replaced = Vec::new();
        let result = loop {
            let qp = match Self::create_once(parts, options) {
                Ok(qp) => qp,
                Err(error) => break Err(error),
            };
            let number = qp.qp_num();
            let is_left = numbers
                .as_mut()
                .is_some_and(|numbers| numbers.contains(number));
            let members = parts.srq.map(|srq| srq.shared().members());
            if !is_left && members.is_none_or(|members| members.insert(number, qp.id())) {
                break Ok(qp);
            }
            replaced.push(qp);
        };
        replaced.into_iter().for_each(Self::discard);
        result
    }

    fn create_once(parts: &Parts<'_>, options: QpOptions) -> Result<Self> {
        let owner = Owner::new(parts.pd, options.device_addresses)?;
        let created = builder::create::<T>(parts, owner.id, options)?;
        Ok(Self::new(&created, owner, parts, options.max_batch))
    }
}
