//! Shared receive queues of an XRC domain, which senders select by number.

#![allow(unsafe_code)]

use std::sync::Arc;

use rdma_sys::{
    IBV_SRQ_INIT_ATTR_CQ, IBV_SRQ_INIT_ATTR_PD, IBV_SRQ_INIT_ATTR_TYPE, IBV_SRQ_INIT_ATTR_XRCD,
    IBV_SRQT_XRC, ibv_create_srq_ex, ibv_get_srq_num, ibv_srq_attr, ibv_srq_init_attr_ex,
};

use crate::convert::{non_null, zero_or_errno};
use crate::cq::CompletionQueue;
use crate::error::{Error, ErrorKind, Result};
use crate::numbers::SrqNum;
use crate::pd::{ProtectionDomain, XrcDomain};
use crate::raw::AsRaw;
use crate::srq::{SharedReceiveQueue, XrcParts, check_provider};
use crate::srq::{SrqOptions, Xrc};
use crate::wr::Owner;

impl ProtectionDomain {
    /// Creates a shared receive queue of an XRC domain. Its receives complete on `cq` for every
    /// [receiving half](crate::xrc::XrcRecvQueuePair) of the domain. See [`XrcDomain`].
    ///
    /// Its buffers are returned when it is destroyed and no receiving half of this `xrcd` is left.
    /// If the domain was opened by a file, the buffers that are posted when it is destroyed are
    /// never used again ([`open_xrcd_by_file`](crate::Context::open_xrcd_by_file)).
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the device has no XRC.
    /// - [`ErrorKind::InvalidInput`] if a size exceeds the device's limit.
    /// - [`ErrorKind::Mismatch`] if the XRC domain or the completion queue belongs to another
    ///   device.
    #[doc(alias = "ibv_create_srq_ex")]
    pub fn create_xrc_srq(
        &self,
        xrcd: &XrcDomain,
        cq: &CompletionQueue,
        options: SrqOptions,
    ) -> Result<SharedReceiveQueue<Xrc>> {
        const VERB: &str = "ibv_create_srq_ex";
        let context = self.context();
        let what = || {
            format!(
                "an XRC shared receive queue with {} receives on {}",
                options.max_wr,
                context.device_name()
            )
        };
        options.check(VERB, what)?;
        check_provider(VERB, self)?;
        if options.device_addresses {
            self.context().check_device_addresses(VERB, false)?;
        }
        cq.check_not_lent(VERB)?;
        for other in [xrcd.context(), cq.inner().context()] {
            if other.as_raw() != context.as_raw() {
                let what = format!(
                    "a protection domain on {} and an XRC domain or completion queue on {}",
                    context.device_name(),
                    other.device_name()
                );
                let error = Error::new(ErrorKind::Mismatch, VERB, what);
                return Err(error.with_help("create them from the same Context"));
            }
        }
        let owner = Owner::new(self, options.device_addresses)?;
        let mut init = ibv_srq_init_attr_ex {
            srq_context: owner.id.as_context(),
            attr: ibv_srq_attr {
                max_wr: options.max_wr,
                max_sge: options.max_sge,
                srq_limit: 0,
            },
            comp_mask: IBV_SRQ_INIT_ATTR_TYPE
                | IBV_SRQ_INIT_ATTR_PD
                | IBV_SRQ_INIT_ATTR_XRCD
                | IBV_SRQ_INIT_ATTR_CQ,
            srq_type: IBV_SRQT_XRC,
            pd: self.as_raw(),
            xrcd: xrcd.as_raw(),
            cq: cq.as_raw(),
            ..Default::default()
        };
        let raw = non_null(VERB, what, || {
            // SAFETY: the domains and the queue are alive and of this context; the attributes are
            // valid during the call.
            unsafe { ibv_create_srq_ex(context.as_raw(), &raw mut init) }
        })?;
        let xrc = XrcParts {
            xrcd: xrcd.clone(),
            _cq: Arc::clone(cq.inner()),
            attached: self.attach_queue_pair(),
        };
        // SAFETY: the queue was just created in these domains with the owner's identity.
        Ok(unsafe { SharedReceiveQueue::from_raw(raw, owner, &init.attr, options, Some(xrc)) })
    }
}

impl SharedReceiveQueue<Xrc> {
    /// Returns the number that senders pass to [`for_srq`](crate::wr::SendRequest::for_srq).
    ///
    /// # Errors
    /// Fails if the device was removed.
    #[doc(alias = "ibv_get_srq_num")]
    pub fn srq_num(&self) -> Result<SrqNum> {
        let mut number = 0;
        // SAFETY: the queue is alive and the number valid for writing.
        let returned = unsafe { ibv_get_srq_num(self.as_raw(), &raw mut number) };
        zero_or_errno("ibv_get_srq_num", || self.describe(), returned)?;
        Ok(SrqNum(number))
    }
}
