//! Shared receive queues of an XRC domain: named by senders, with a completion queue of their own.

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
use crate::srq::{SharedReceiveQueue, XrcParts};
use crate::srq::{SrqOptions, Xrc};
use crate::wr::Owner;

impl ProtectionDomain {
    /// Creates a shared receive queue of an XRC domain. Its receives complete on `cq`, whichever
    /// [receiving half](crate::xrc::XrcRecvQueuePair) of the domain the message came by. See
    /// [`XrcDomain`].
    ///
    /// Its buffers come back when it is destroyed and no receiving half is left that was made on
    /// this `xrcd`. (Those of other processes end with the destroy, as the device promises.)
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device has no XRC, [`ErrorKind::InvalidInput`] when a
    /// size is above what the device has, [`ErrorKind::Mismatch`] when the XRC domain or the
    /// completion queue is of another device.
    ///
    /// # References
    /// [`ibv_create_srq_ex(3)`](https://man7.org/linux/man-pages/man3/ibv_create_srq_ex.3.html)
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
                "XRC, {} receives on {}",
                options.max_wr,
                context.device_name()
            )
        };
        options.check(VERB, what)?;
        for other in [xrcd.context(), cq.inner().context()] {
            if other.as_raw() != context.as_raw() {
                let (its, mine) = (other.device_name(), context.device_name());
                let what =
                    format!("a domain of {mine} with an XRC domain or a completion queue of {its}");
                let error = Error::new(ErrorKind::Mismatch, VERB, what);
                return Err(error.with_help("make them on the same opening of the device"));
            }
        }
        let owner = Owner::new(self)?;
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
        // SAFETY: just made, of these domains, with the owner's identity.
        Ok(unsafe { SharedReceiveQueue::of(raw, owner, &init.attr, options, Some(xrc)) })
    }
}

impl SharedReceiveQueue<Xrc> {
    /// The number by which senders name it: [`for_srq`](crate::wr::SendRequest::for_srq).
    ///
    /// # Errors
    /// Fails when the device is gone.
    ///
    /// # References
    /// [`ibv_get_srq_num(3)`](https://man7.org/linux/man-pages/man3/ibv_get_srq_num.3.html)
    pub fn srq_num(&self) -> Result<SrqNum> {
        let mut number = 0;
        // SAFETY: the queue is alive and the number valid for writing.
        let returned = unsafe { ibv_get_srq_num(self.as_raw(), &raw mut number) };
        zero_or_errno("ibv_get_srq_num", || self.describe(), returned)?;
        Ok(SrqNum(number))
    }
}
