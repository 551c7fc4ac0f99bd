//! Completion counters of a queue pair.

#![allow(unsafe_code)]

use rdma_sys::{ibv_qp_attach_comp_cntr, ibv_qp_attach_comp_cntr_attr};

use super::pair::QueuePair;
use crate::convert::zero_or_errno;
use crate::counter::{CompletionCounter, CounterOps};
use crate::error::{Error, ErrorKind, Result};
use crate::raw::AsRaw;
use crate::transport::SendTransport;

const VERB: &str = "ibv_qp_attach_comp_cntr";

impl<T: SendTransport> QueuePair<T> {
    /// Lets a counter count the operations `ops` of the queue pair, which must be in RESET or INIT.
    /// Several counters can be attached for different operations, and a counter to several queue
    /// pairs. It stays attached, and alive, until the queue pair is destroyed.
    ///
    /// # Errors
    /// - [`ErrorKind::Mismatch`] if the counter belongs to another open device.
    /// - [`ErrorKind::Unsupported`] if the device cannot count one of the operations.
    /// - [`ErrorKind::InvalidInput`] if no operation is given, or in another state.
    /// - [`ErrorKind::Os`] with `EBUSY` if another counter counts one of the operations.
    ///
    /// # References
    /// [`ibv_qp_attach_comp_cntr(3)`](https://github.com/linux-rdma/rdma-core/blob/master/libibverbs/man/ibv_qp_attach_comp_cntr.3.md)
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn attach_counter(&mut self, counter: &CompletionCounter, ops: CounterOps) -> Result<()> {
        let (its, own) = (counter.context(), self.pd().context());
        if its.as_raw() != own.as_raw() {
            let names = (its.device_name(), own.device_name());
            let what = format!("a counter on {} and a queue pair on {}", names.0, names.1);
            return Err(Error::new(ErrorKind::Mismatch, VERB, what)
                .with_help("create both from the same Context"));
        }
        let mut attr = ibv_qp_attach_comp_cntr_attr {
            comp_mask: 0,
            op_mask: ops.bits(),
        };
        let qp = self.live(VERB)?.as_ptr();
        // SAFETY: both objects are alive and of one context, and the attributes are valid during
        // the call.
        let returned = unsafe { ibv_qp_attach_comp_cntr(qp, counter.as_raw(), &raw mut attr) };
        zero_or_errno(VERB, || self.describe_state(), returned)?;
        self.tables.counters.push(counter.clone());
        Ok(())
    }
}
