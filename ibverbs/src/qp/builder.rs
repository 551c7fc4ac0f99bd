//! Creating a queue pair with one of the two verbs.

#![allow(unsafe_code)]

use std::ptr::{self, NonNull};

use rdma_sys::{
    IBV_QP_INIT_ATTR_PD, IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, ibv_cq, ibv_create_qp, ibv_destroy_qp,
    ibv_pd, ibv_qp, ibv_qp_cap, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex, ibv_qp_to_qp_ex,
    ibv_srq,
};
use rdma_types::convert::non_null;

use super::functions;
use super::options::{QpCaps, QpOptions};
use crate::cq::CompletionQueue;
use crate::device::Avoided;
use crate::error::{Errno, Error, ErrorKind, Result, call_failed};
use crate::forked::{self, Object};
use crate::identity::QueueId;
use crate::in_flight::{CompletionOrder, Ring, check_memory};
use crate::pd::{ParentDomain, ProtectionDomain};
use crate::raw::AsRaw;
use crate::srq::SharedReceiveQueue;
use crate::transport::{DriverOptions, LogStreams, SendTransport, Transport};

/// A new queue pair, as libibverbs returned it.
pub(crate) struct CreatedQp {
    pub(crate) raw: NonNull<ibv_qp>,
    pub(crate) extended: Option<NonNull<ibv_qp_ex>>,
    pub(crate) caps: QpCaps,
    /// The operations beyond the required ones that can be posted: those that the provider accepted
    /// at creation. A queue pair with the classic verbs, which check when posting, has all that
    /// need not be requested.
    pub(crate) extra_ops: u64,
    pub(crate) send_order: CompletionOrder,
}

/// The objects that a queue pair is created from.
pub(crate) struct Parts<'a> {
    pub(crate) pd: &'a ProtectionDomain,
    pub(crate) send_cq: &'a CompletionQueue,
    /// `None` if the queue pair does not receive.
    pub(crate) recv_cq: Option<&'a CompletionQueue>,
    pub(crate) srq: Option<&'a SharedReceiveQueue>,
    /// The domain to create it in, if not `pd` itself.
    pub(crate) parent: Option<&'a ParentDomain>,
    pub(crate) streams: Option<LogStreams>,
}

impl Parts<'_> {
    fn domain(&self) -> *mut ibv_pd {
        self.parent.map_or(self.pd.as_raw(), AsRaw::as_raw)
    }

    fn recv_cq(&self) -> *mut ibv_cq {
        self.recv_cq.map_or(ptr::null_mut(), AsRaw::as_raw)
    }

    fn srq(&self) -> *mut ibv_srq {
        self.srq.map_or(ptr::null_mut(), AsRaw::as_raw)
    }

    /// Returns what the completion of a send proves about earlier sends. With the extended verbs,
    /// which no provider of iWARP has, either all sends complete in order or all are signaled. Then
    /// a post need not check it.
    fn send_order<T: SendTransport>(&self, has_extended: bool) -> CompletionOrder {
        let properties = self.pd.context().properties();
        if !T::COMPLETES_IN_ORDER {
            CompletionOrder::Any
        } else if properties.finishes_in_order {
            CompletionOrder::InOrder
        } else if properties.frees_unsignaled && !has_extended {
            CompletionOrder::Unsignaled
        } else {
            CompletionOrder::Any
        }
    }

    /// Checks that all objects belong to one device, and the shared receive queue to the domain.
    ///
    /// # Errors
    /// [`ErrorKind::Mismatch`] if they do not.
    pub(crate) fn check(&self) -> Result<()> {
        let pd = self.pd;
        for cq in [Some(self.send_cq), self.recv_cq].into_iter().flatten() {
            cq.check_not_lent("ibv_create_qp")?;
            let cq_context = cq.inner().context();
            if cq_context.as_raw() != pd.context().as_raw() {
                return Err(Error::new(
                    ErrorKind::Mismatch,
                    "ibv_create_qp",
                    format!(
                        "a protection domain on {} and a completion queue on {}",
                        pd.context().device_name(),
                        cq_context.device_name()
                    ),
                )
                .with_help("create both from the same Context"));
            }
        }
        if let Some(srq) = self.srq {
            if !srq.shared().pd().is(pd) {
                let (its, mine) = (
                    srq.shared().pd().context().device_name(),
                    pd.context().device_name(),
                );
                let what = format!(
                    "a protection domain on {mine} and a shared receive queue of another protection domain on {its}"
                );
                return Err(
                    Error::new(ErrorKind::Mismatch, "ibv_create_qp", what).with_help(
                        "create the queue pair in the protection domain of the shared receive queue",
                    ),
                );
            }
        }
        Ok(())
    }

    /// Returns what a function of the provider sets for the queue pair.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if it is to use addresses that this process does not have, and
    /// the provider copies to them.
    fn driver_options<T: SendTransport>(&self, options: QpOptions) -> Result<DriverOptions> {
        let context = self.pd.context();
        let receives = self
            .srq
            .is_some_and(|srq| srq.shared().has_device_addresses());
        let device_addresses = options.device_addresses || receives;
        if device_addresses {
            let sends_raw_packets = T::TRANSPORT == Transport::RawPacket;
            context.check_device_addresses("ibv_create_qp", sends_raw_packets)?;
        }
        Ok(DriverOptions {
            streams: self.streams,
            // libmlx5 frees the entry of a shared receive queue before it copies to its address.
            scatter_to_cqe_off: (device_addresses || self.srq.is_some())
                && context.avoids(Avoided::SCATTER_TO_CQE),
        })
    }

    /// Returns `true` if the queue pair has a receive queue of its own.
    fn receives(&self) -> bool {
        self.recv_cq.is_some() && self.srq.is_none()
    }
}

/// Creates a queue pair, with extended verbs if the provider has them.
pub(crate) fn create<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
) -> Result<CreatedQp> {
    let pd = parts.pd;
    parts.check()?;
    if options.max_send_wr.max(options.max_recv_wr) > Ring::MAX {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "ibv_create_qp",
            describe(pd, options),
        )
        .with_help(format!(
            "this library supports at most {} sends and {0} receives in flight",
            Ring::MAX
        )));
    }
    let requests = options.max_send_wr.saturating_add(options.max_recv_wr);
    let inline = u64::from(options.max_batch) * u64::from(options.max_inline_data);
    check_memory("ibv_create_qp", requests, inline)?;
    // Soft-RoCE's provider computes a wrong length for an extended send with several scatter/gather
    // entries: it takes the length of the first entry for each (fixed by rdma-core pull request
    // 1744). There, queue pairs with several entries use the classic verbs.
    let single_sge_only = pd.context().is_soft_roce()?;
    let classic_only = options.classic_only
        || single_sge_only && options.max_send_sge > 1
        || pd.context().avoids(Avoided::EXTENDED_SENDS) && T::CLASSIC;
    check_optional_ops::<T>(pd, options, classic_only)?;
    let driver = parts.driver_options::<T>(options)?;
    let create = |options| create_any::<T>(parts, id, options, classic_only, driver);
    let mut created =
        create(options).map_err(|error| with_inline_limit(error, pd, options, create))?;
    if let Some(extended) = created.extended {
        forked::add(Object::QueuePair(extended));
        if single_sge_only {
            created.caps.max_send_sge = created.caps.max_send_sge.min(1);
        }
    }
    Ok(created)
}

/// Creates a queue pair with the extended verbs, or with the classic ones where it cannot.
fn create_any<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
    classic_only: bool,
    driver: DriverOptions,
) -> Result<CreatedQp> {
    let classic = || {
        let created = create_classic::<T>(parts, id, options, driver);
        created.map_err(|errno| refused("ibv_create_qp", errno, parts, options))
    };
    if classic_only && T::CLASSIC {
        return classic();
    }
    let optional_ops = options.optional_ops.bits();
    // SAFETY: the context is alive.
    let extra_ops = unsafe { T::extra_ops(parts.pd.context().as_raw()) };
    let mut created = create_extended::<T>(parts, id, options, extra_ops | optional_ops, driver);
    if created.is_err() && extra_ops != 0 {
        created = create_extended::<T>(parts, id, options, optional_ops, driver);
    }
    match created {
        // If the classic verb fails too, its error tells the reason.
        Err(_) if T::CLASSIC && optional_ops == 0 => classic(),
        created => created.map_err(|errno| refused(T::CREATE, errno, parts, options)),
    }
}

/// Returns the error of a queue pair that the provider refused.
fn refused(verb: &'static str, errno: Errno, parts: &Parts<'_>, options: QpOptions) -> Error {
    call_failed(verb, errno, describe(parts.pd, options))
}

/// Adds the limit of inline data to the error of a queue pair that was refused because of it.
/// Devices state no such limit, so this tries smaller lengths.
fn with_inline_limit(
    error: Error,
    pd: &ProtectionDomain,
    options: QpOptions,
    create: impl Fn(QpOptions) -> Result<CreatedQp>,
) -> Error {
    let requested = options.max_inline_data;
    if requested == 0 || error.errno() != Some(Errno(libc::EINVAL)) {
        return error;
    }
    let is_granted = |inline| {
        let created = create(options.max_inline_data(inline));
        // SAFETY: the queue pair was just created, and nothing else refers to it.
        created.map(|qp| unsafe { destroy(qp.raw) }).is_ok()
    };
    if !is_granted(0) {
        return error;
    }
    let (mut granted, mut refused) = (0, requested);
    while refused - granted > 1 {
        let middle = granted + (refused - granted) / 2;
        if is_granted(middle) {
            granted = middle;
        } else {
            refused = middle;
        }
    }
    let device = pd.context().device_name();
    error.with_help(format!(
        "{device} supports at most {granted} bytes of inline data: lower \
         QpOptions::max_inline_data"
    ))
}

/// Destroys a new queue pair.
///
/// # Safety
/// The queue pair is alive, and nothing else refers to it.
unsafe fn destroy(qp: NonNull<ibv_qp>) {
    // SAFETY: guaranteed by the caller.
    if unsafe { ibv_destroy_qp(qp.as_ptr()) } != 0 {
        crate::leak::count_leaked_object();
    }
}

/// Checks that the transport has the optional operations, and that the queue pair will use the
/// extended verbs if it has any.
fn check_optional_ops<T: SendTransport>(
    pd: &ProtectionDomain,
    options: QpOptions,
    classic_only: bool,
) -> Result<()> {
    let ops = options.optional_ops;
    if ops.bits() & !T::OPTIONAL_OPS != 0 {
        return Err(Error::new(
            ErrorKind::InvalidInput,
            "ibv_create_qp_ex",
            format!("a {} queue pair has no optional operations", T::TRANSPORT),
        )
        .with_help("set QpOptions::optional_ops for reliable connections only"));
    }
    if !ops.is_empty() && classic_only {
        return Err(
            Error::new(ErrorKind::Unsupported, T::CREATE, describe(pd, options)).with_help(
                "the classic verbs have no optional operations: set QpOptions::classic_only to \
                 false, and on Soft-RoCE max_send_sge to 1",
            ),
        );
    }
    Ok(())
}

fn create_extended<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
    extra_ops: u64,
    driver: DriverOptions,
) -> Result<CreatedQp, Errno> {
    let send_order = parts.send_order::<T>(true);
    let mut attr = init_attr::<T>(parts, id, options, send_order);
    attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    attr.send_ops_flags = T::SEND_OPS | extra_ops;
    let raw = non_null(|| {
        // SAFETY: domain and queues are alive and of this context; the attributes are valid during
        // the call.
        unsafe { T::create(parts.pd.context().as_raw(), &mut attr, driver) }
    })?;
    // SAFETY: the queue pair was just created with these operations.
    let extended = NonNull::new(unsafe { ibv_qp_to_qp_ex(raw.as_ptr()) })
        .filter(|&qp| unsafe { functions::are_set(qp, T::TRANSPORT, attr.send_ops_flags) });
    if extended.is_none() {
        // SAFETY: nothing else refers to the new queue pair.
        unsafe { destroy(raw) };
        return Err(Errno(libc::EOPNOTSUPP));
    }
    Ok(CreatedQp {
        raw,
        extended,
        caps: granted::<T>(parts, &attr.cap),
        extra_ops,
        send_order,
    })
}

fn create_classic<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
    driver: DriverOptions,
) -> Result<CreatedQp, Errno> {
    let send_order = parts.send_order::<T>(false);
    let mut attr = init_attr::<T>(parts, id, options, send_order);
    let raw = non_null(|| {
        // SAFETY: domain and queues are alive and of one context; the attributes are valid during
        // the call. The extended structure begins with the fields of the other one.
        unsafe {
            if driver.scatter_to_cqe_off {
                T::create(parts.pd.context().as_raw(), &mut attr, driver)
            } else {
                ibv_create_qp(parts.domain(), (&raw mut attr).cast::<ibv_qp_init_attr>())
            }
        }
    })?;
    Ok(CreatedQp {
        raw,
        extended: None,
        caps: granted::<T>(parts, &attr.cap),
        extra_ops: !T::OPTIONAL_OPS,
        send_order,
    })
}

/// Returns the attributes of both verbs.
fn init_attr<T: SendTransport>(
    parts: &Parts<'_>,
    id: QueueId,
    options: QpOptions,
    send_order: CompletionOrder,
) -> ibv_qp_init_attr_ex {
    ibv_qp_init_attr_ex {
        qp_context: id.as_context(),
        send_cq: parts.send_cq.as_raw(),
        recv_cq: parts.recv_cq(),
        srq: parts.srq(),
        cap: requested::<T>(parts, options),
        qp_type: T::QP_TYPE.0,
        sq_sig_all: i32::from(send_order == CompletionOrder::Any),
        comp_mask: IBV_QP_INIT_ATTR_PD,
        pd: parts.domain(),
        ..Default::default()
    }
}

fn describe(pd: &ProtectionDomain, options: QpOptions) -> String {
    let names: Vec<&str> = options
        .optional_ops
        .iter_names()
        .map(|(name, _)| name)
        .collect();
    let ops = if names.is_empty() {
        String::new()
    } else {
        format!(" and {}", names.join(" and "))
    };
    format!(
        "a queue pair with {} sends, {} receives, {} gather and {} scatter entries and {} bytes of inline data{ops} on {}",
        options.max_send_wr,
        options.max_recv_wr,
        options.max_send_sge,
        options.max_recv_sge,
        options.max_inline_data,
        pd.context().device_name()
    )
}

/// Returns the capacities to request. Each attempt needs a new structure, because providers
/// overwrite it with the granted values. At least one scatter/gather entry is requested:
/// Soft-RoCE's extended verbs write one without checking the capacity.
fn requested<T: SendTransport>(parts: &Parts<'_>, options: QpOptions) -> ibv_qp_cap {
    let receives = parts.receives();
    ibv_qp_cap {
        max_send_wr: options.max_send_wr,
        max_recv_wr: if receives { options.max_recv_wr } else { 0 },
        max_send_sge: options.max_send_sge.max(1),
        max_recv_sge: if receives {
            options.max_recv_sge.max(1)
        } else {
            0
        },
        max_inline_data: inline::<T>(parts, options.max_inline_data),
    }
}

/// Returns the granted capacities. Providers leave any value in `max_recv_wr` of a queue pair
/// without a receive queue.
fn granted<T: SendTransport>(parts: &Parts<'_>, cap: &ibv_qp_cap) -> QpCaps {
    QpCaps {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: if parts.receives() { cap.max_recv_wr } else { 0 },
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: inline::<T>(parts, cap.max_inline_data),
    }
}

/// Returns the length of inline data that the provider copies.
fn inline<T: SendTransport>(parts: &Parts<'_>, max: u32) -> u32 {
    let avoided = match T::TRANSPORT {
        Transport::Ud => Avoided::INLINE | Avoided::INLINE_UD,
        Transport::XrcSend => Avoided::INLINE | Avoided::INLINE_XRC,
        _ => Avoided::INLINE,
    };
    if parts.pd.context().avoids(avoided) {
        0
    } else {
        max
    }
}
