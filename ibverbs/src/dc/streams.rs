//! Streams of an initiator: independent sequences of requests on one queue pair.

#![allow(unsafe_code)]

use rdma_sys::{
    MLX5DV_CONTEXT_MASK_DCI_STREAMS, ibv_context, ibv_qp, ibv_qp_ex, ibv_qp_init_attr_ex,
    ibv_send_wr, mlx5dv_context, mlx5dv_dci_stream_id_reset, mlx5dv_qp_ex_from_ibv_qp_ex,
    mlx5dv_query_device, mlx5dv_wr_set_dc_addr_stream,
};

use super::initiator::{self, Dc, DcDestination};
use crate::convert::zero_or_errno;
use crate::cq::CompletionQueue;
use crate::device::Context;
use crate::error::{Error, ErrorKind, Result};
use crate::pd::ProtectionDomain;
use crate::qp::{Parts, QpOptions, QpState, QueuePair, RcPath};
use crate::raw::AsRaw;
use crate::transport::private::Sealed;
use crate::transport::{DatagramTransport, DriverOptions, LogStreams, SendTransport, Transport};
use crate::wr::{
    Address, CompareSwap, FetchAdd, HeldAddress, Operation, RdmaRead, RdmaWrite, RdmaWriteWithImm,
    ReadPayload, Send, SendPayload, SendWithImm, To,
};

/// Initiator of the dynamically connected transport (DC) with streams: independent sequences of
/// requests on one queue pair.
///
/// It has the operations of [`Dc`], and each request also names its stream
/// ([`StreamDestination`]). The requests of a stream are executed in order. The adapter executes up
/// to [`StreamLimits::concurrent`] streams at the same time, so a target that has no receive does
/// not delay the requests to other targets. Requests of further streams wait, and so may those
/// behind them in the queue.
///
/// Requests of different streams complete in any order. Therefore every request has a completion,
/// which retires that request alone, and [`signaled(false)`](crate::wr::SendRequest::signaled) has
/// no effect. A completion does not name the stream: use the [tag](crate::wr::SendRequest::tag).
///
/// # Errors of streams
/// A request that fails stops its stream. The other requests of the stream complete with
/// [`WcStatus::WR_FLUSH_ERR`](crate::WcStatus::WR_FLUSH_ERR), also those that are posted later,
/// until the stream is [reset](QueuePair::reset_stream). The other streams go on, and the queue
/// pair stays in the state RTS. It enters the state ERR when [`StreamLimits::errored`] streams have
/// failed and have not been reset. All its requests then complete as flushed.
///
/// # Example
/// ```no_run
/// use ibverbs::dc::{DcDestination, DcStreams, StreamDestination, StreamLimits};
/// use ibverbs::{CompletionQueue, ProtectionDomain, QpOptions, QueuePair, RcPath, wr};
/// # fn f(pd: &ProtectionDomain, cq: &CompletionQueue, path: &RcPath,
/// # hold: impl Fn(&mut QueuePair<DcStreams>) -> ibverbs::Result<Vec<DcDestination>>)
/// # -> ibverbs::Result<()> {
/// let limits = StreamLimits { concurrent: 8, errored: 4 };
/// let mut qp = pd.create_dc_streams_qp(cq, QpOptions::new().max_inline_data(64), limits)?;
/// qp.start(path)?;
/// let targets = hold(&mut qp)?;
/// for (stream, &target) in (0..).zip(&targets) {
///     let there = StreamDestination { target, stream };
///     qp.post_send(wr::send(wr::Inline(b"hello")).to(there).tag(stream.into()))?;
/// }
/// # Ok(()) }
/// ```
#[doc(alias = "mlx5dv_create_qp")]
#[derive(Clone, Copy, Debug)]
pub struct DcStreams;

impl Sealed for DcStreams {}

impl SendTransport for DcStreams {
    const TRANSPORT: Transport = Transport::DcInitiator;
    const SEND_OPS: u64 = Dc::SEND_OPS;
    const EXTRA_OPS: u64 = Dc::EXTRA_OPS;
    const CLASSIC: bool = false;
    const COMPLETES_IN_ORDER: bool = false;
    const CREATE: &str = Dc::CREATE;

    unsafe fn create(
        context: *mut ibv_context,
        attr: &mut ibv_qp_init_attr_ex,
        driver: DriverOptions,
    ) -> *mut ibv_qp {
        // libmlx5 takes the requests after the one that completed last for those in flight. If an
        // old request completes last, these are too many, and it would refuse posts although the
        // table of this crate has free slots. Let the table have `n` slots, and let `p` be the
        // position of that request. When it completed, all requests were before `p + n`. No later
        // one has completed since, so all are before `p + 2 * n` now. The table never has a request
        // in flight whose entry libmlx5 writes again, because it frees its slots in order.
        attr.cap.max_send_wr = attr.cap.max_send_wr.saturating_mul(2);
        // SAFETY: guaranteed by the caller.
        let qp = unsafe { initiator::create(context, attr, driver.streams) };
        attr.cap.max_send_wr /= 2;
        qp
    }
}

impl DatagramTransport for DcStreams {}

/// Numbers of streams of a [`DcStreams`] queue pair. Both are powers of 2.
///
/// # Example
/// ```no_run
/// # let context = ibverbs::Device::by_name("mlx5_0")?.open()?;
/// use ibverbs::dc::StreamLimits;
/// let largest = context.query_dc_streams()?;
/// let limits = StreamLimits { concurrent: largest.concurrent.min(8), errored: largest.errored };
/// # Ok::<(), ibverbs::Error>(())
/// ```
#[doc(alias = "mlx5dv_create_qp")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Number of streams that the adapter executes at the same time. Any number of streams can have
    /// requests in the queue.
    pub concurrent: u32,
    /// Number of failed streams that stops the queue pair.
    pub errored: u32,
}

/// The destination and the stream of a request of a [`DcStreams`] queue pair.
///
/// # Example
/// ```no_run
/// use ibverbs::{QueuePair, dc::{DcDestination, DcStreams, StreamDestination}, wr};
/// # fn f(qp: &mut QueuePair<DcStreams>, target: DcDestination) -> ibverbs::Result<()> {
/// let there = StreamDestination { target, stream: 7 };
/// qp.post_send(wr::send(wr::Inline(b"hello")).to(there).tag(7))?;
/// # Ok(()) }
/// ```
#[doc(alias = "mlx5dv_wr_set_dc_addr_stream")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamDestination {
    /// The target.
    pub target: DcDestination,
    /// Number of the stream, any value. Streams need not be created.
    pub stream: u16,
}

impl Address for StreamDestination {
    #[inline]
    fn held(self) -> Option<HeldAddress> {
        self.target.held()
    }

    /// Does nothing: the queue pairs have extended verbs only.
    fn classic(self, _: &mut ibv_send_wr) {}

    #[inline]
    unsafe fn extended(self, qp: *mut ibv_qp_ex) {
        let Self { target, stream } = self;
        let address = target.address.as_ptr();
        // SAFETY: guaranteed by the caller: `qp` was created for streams, by libmlx5.
        unsafe {
            let qp = mlx5dv_qp_ex_from_ibv_qp_ex(qp);
            mlx5dv_wr_set_dc_addr_stream(qp, address, target.qpn.0, target.key.0, stream);
        }
    }
}

type Target<O> = To<O, StreamDestination>;

impl<P: SendPayload> Operation<DcStreams, P> for Target<Send> {}
impl<P: SendPayload> Operation<DcStreams, P> for Target<SendWithImm> {}
impl<P: SendPayload> Operation<DcStreams, P> for Target<RdmaWrite> {}
impl<P: SendPayload> Operation<DcStreams, P> for Target<RdmaWriteWithImm> {}
impl<P: ReadPayload> Operation<DcStreams, P> for Target<RdmaRead> {}
impl<P: ReadPayload> Operation<DcStreams, P> for Target<CompareSwap> {}
impl<P: ReadPayload> Operation<DcStreams, P> for Target<FetchAdd> {}

impl Context {
    /// Returns the largest numbers of streams that a [`DcStreams`] queue pair can have.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the device has no streams.
    #[doc(alias = "mlx5dv_query_device")]
    pub fn query_dc_streams(&self) -> Result<StreamLimits> {
        const VERB: &str = "mlx5dv_query_device";
        let mut attr = mlx5dv_context {
            comp_mask: MLX5DV_CONTEXT_MASK_DCI_STREAMS.into(),
            ..Default::default()
        };
        // SAFETY: the context is alive, and the structure is writable. libmlx5 accepts contexts of
        // all providers.
        let returned = unsafe { mlx5dv_query_device(self.as_raw(), &raw mut attr) };
        zero_or_errno(VERB, || self.device_name().into(), returned)?;
        let caps = attr.dci_streams_caps;
        let has_streams = attr.comp_mask & u64::from(MLX5DV_CONTEXT_MASK_DCI_STREAMS) != 0
            && caps.max_log_num_concurent != 0;
        if !has_streams {
            let what = format!("{} has no streams of DC", self.device_name());
            return Err(Error::new(ErrorKind::Unsupported, VERB, what));
        }
        let number = |log: u8| 1_u32.checked_shl(log.into()).unwrap_or(1 << 31);
        Ok(StreamLimits {
            concurrent: number(caps.max_log_num_concurent),
            errored: number(caps.max_log_num_errored),
        })
    }
}

impl ProtectionDomain {
    /// Creates an initiator of the dynamically connected transport with streams, in state RESET.
    /// The receive sizes of `options` are ignored. The send queue takes twice the memory of other
    /// queue pairs, so `max_send_wr` can be at most half of the device's `max_qp_wr`.
    ///
    /// # Errors
    /// Same as [`create_dc_qp`](Self::create_dc_qp), and
    /// - [`ErrorKind::Unsupported`] if the device has no streams.
    /// - [`ErrorKind::InvalidInput`] if a limit is not a power of 2, or exceeds that of the
    ///   [device](Context::query_dc_streams).
    #[doc(alias = "mlx5dv_create_qp")]
    pub fn create_dc_streams_qp(
        &self,
        send_cq: &CompletionQueue,
        options: QpOptions,
        limits: StreamLimits,
    ) -> Result<QueuePair<DcStreams>> {
        let largest = self.context().query_dc_streams()?;
        let log = |number: u32, largest: u32| {
            (0..32_u8).find(|log| number == 1 << log && number <= largest)
        };
        let concurrent = log(limits.concurrent, largest.concurrent);
        let errored = log(limits.errored, largest.errored);
        let (Some(concurrent), Some(errored)) = (concurrent, errored) else {
            let what = format!(
                "{} concurrent and {} failed streams on {}",
                limits.concurrent,
                limits.errored,
                self.context().device_name()
            );
            return Err(
                Error::new(ErrorKind::InvalidInput, DcStreams::CREATE, what).with_help(format!(
                    "use powers of 2, at most {} concurrent and {} failed streams",
                    largest.concurrent, largest.errored
                )),
            );
        };
        let parts = Parts {
            pd: self,
            send_cq,
            recv_cq: None,
            srq: None,
            parent: None,
            streams: Some(LogStreams {
                concurrent,
                errored,
            }),
        };
        QueuePair::create(&parts, options)
    }
}

impl QueuePair<DcStreams> {
    /// Moves the queue pair from RESET through INIT and RTR to RTS, like
    /// [`QueuePair::<Dc>::start`](QueuePair::start). The path is that of all streams.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the queue pair is in another state or the port does not
    /// exist.
    #[doc(alias = "ibv_modify_qp")]
    pub fn start(&mut self, path: &RcPath) -> Result<()> {
        self.handle().start_dc(path)
    }

    /// Ends the error of a stream, so that its requests are executed again. First retire the
    /// completions of all its requests, because those that were not flushed yet may be executed.
    ///
    /// # Errors
    /// - [`ErrorKind::InvalidInput`] if the stream has not failed.
    /// - [`ErrorKind::WrongState`] if the queue pair is not in the state RTS, for example because
    ///   too many streams have failed.
    /// - [`ErrorKind::Unsupported`] if the adapter cannot reset a stream.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{QpState, QueuePair, Retired, dc::DcStreams};
    /// /// Handles a failed request whose tag is the number of its stream. `in_flight` is the
    /// /// number of requests that the stream has in flight.
    /// fn failed(
    ///     qp: &mut QueuePair<DcStreams>,
    ///     retired: Retired,
    ///     in_flight: usize,
    /// ) -> ibverbs::Result<()> {
    ///     if in_flight == 0 && qp.state()? == QpState::RTS {
    ///         qp.reset_stream(retired.tag() as u16)?;
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "mlx5dv_dci_stream_id_reset")]
    pub fn reset_stream(&mut self, stream: u16) -> Result<()> {
        const VERB: &str = "mlx5dv_dci_stream_id_reset";
        let what = || format!("stream {stream} of a {}", self.handle().describe());
        // libmlx5 reports another state as unsupported, and knows it only after a query.
        let state = self.state()?;
        if state != QpState::RTS {
            let what = format!("{} in state {state}", what());
            return Err(Error::new(ErrorKind::WrongState, VERB, what)
                .with_help("retire all completions, then destroy the queue pair"));
        }
        let qp = self.live(VERB)?.as_ptr();
        // SAFETY: the queue pair is alive.
        let returned = unsafe { mlx5dv_dci_stream_id_reset(qp, stream) };
        zero_or_errno(VERB, what, returned)
    }
}
