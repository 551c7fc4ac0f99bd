//! Raw packets: a queue pair of whole frames, and the rules that say which it receives.

#![allow(unsafe_code)]

use rdma_sys::{IBV_QP_PORT, IBV_QP_STATE, ibv_create_flow, ibv_destroy_flow, ibv_qp_attr};

use super::pair::QueuePair;
use super::state::QpState;
use crate::convert::{non_null, zero_or_errno};
use crate::error::{Error, Result};
use crate::flow::{FlowId, FlowRule, Packed};
use crate::kind::ErrorKind;
use crate::raw::AsRaw;
use crate::transport::{DuplexTransport, RawPacket};

impl QueuePair<RawPacket> {
    /// Moves the queue pair from RESET through INIT and RTR to RTS: it can send, and receives what
    /// its [rules](Self::create_flow) say.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] when it is in another state or the port does not exist.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{
    ///     CqOptions, Device, QpOptions, RawPacket,
    ///     flow::{FlowRule, FlowSpec},
    ///     wr,
    /// };
    ///
    /// let context = Device::by_name("mlx5_0")?.open()?;
    /// let pd = context.alloc_pd()?;
    /// let cq = context.create_cq(CqOptions::default())?;
    /// let mut qp = pd.create_qp::<RawPacket>(&cq, &cq, QpOptions::default())?;
    /// qp.start(1)?;
    /// qp.post_recv(wr::recv(pd.buf(1518)?))?;
    /// qp.create_flow(&FlowRule::new(1, [FlowSpec::to_mac([2, 0, 0, 0, 0, 1])]))?;
    /// let mut frame = pd.buf(64)?;
    /// frame[..6].fill(0xff); // to everybody
    /// qp.post_send(wr::send(frame))?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    ///
    /// # References
    /// [`ibv_modify_qp(3)`](https://man7.org/linux/man-pages/man3/ibv_modify_qp.3.html)
    pub fn start(&mut self, port_num: u8) -> Result<()> {
        let mut init = ibv_qp_attr {
            qp_state: QpState::INIT.0,
            port_num,
            ..Default::default()
        };
        self.control()
            .modify_raw("INIT", &mut init, IBV_QP_STATE | IBV_QP_PORT)?;
        for (name, state) in [("RTR", QpState::RTR), ("RTS", QpState::RTS)] {
            let mut attr = ibv_qp_attr {
                qp_state: state.0,
                ..Default::default()
            };
            self.control().modify_raw(name, &mut attr, IBV_QP_STATE)?;
        }
        Ok(())
    }
}

impl<T: DuplexTransport> QueuePair<T> {
    /// Receives the packets that the rule means, as long as the queue pair exists or until the rule
    /// is [destroyed](Self::destroy_flow). Raw packet and datagram queue pairs can, where the
    /// device has flow steering.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] where the device has none (both software devices),
    /// [`ErrorKind::PermissionDenied`] without `CAP_NET_RAW`, [`ErrorKind::InvalidInput`] for
    /// headers in a wrong order, or for a queue pair of another type.
    ///
    /// # Example
    /// ```no_run
    /// use ibverbs::{
    ///     QueuePair, RawPacket,
    ///     flow::{FlowRule, FlowSpec},
    /// };
    /// # fn f(qp: &mut QueuePair<RawPacket>) -> ibverbs::Result<()> {
    /// let rule = FlowRule::new(
    ///     1,
    ///     [
    ///         FlowSpec::to_mac([0x02, 0, 0, 0, 0, 0x01]),
    ///         FlowSpec::to_udp_port(4791),
    ///     ],
    /// );
    /// let flow = qp.create_flow(&rule)?;
    /// // receive packets, and then
    /// qp.destroy_flow(flow)?;
    /// # Ok(()) }
    /// ```
    ///
    /// # References
    /// [`ibv_create_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    pub fn create_flow(&mut self, rule: &FlowRule) -> Result<FlowId> {
        const VERB: &str = "ibv_create_flow";
        let what = || format!("{}, {} headers", self.describe(), rule.specs.len());
        let mut packed =
            Packed::of(rule).ok_or_else(|| Error::new(ErrorKind::InvalidInput, VERB, what()))?;
        let raw = non_null(VERB, what, || {
            // SAFETY: the queue pair is alive; the attributes are followed by as many
            // specifications as they say, all valid during the call.
            unsafe { ibv_create_flow(self.as_raw(), packed.as_mut_ptr()) }
        })?;
        Ok(self.tables.flows.add(raw))
    }

    /// Ends a rule. Destroying the queue pair does so too.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] for a rule that is not (any more) one of this queue pair's.
    ///
    /// # References
    /// [`ibv_destroy_flow(3)`](https://man7.org/linux/man-pages/man3/ibv_create_flow.3.html)
    pub fn destroy_flow(&mut self, flow: FlowId) -> Result<()> {
        const VERB: &str = "ibv_destroy_flow";
        let Some(raw) = self.tables.flows.take(flow) else {
            let what = format!("{} has no such rule", self.describe());
            return Err(Error::new(ErrorKind::InvalidInput, VERB, what));
        };
        // SAFETY: made by `create_flow`, taken out of the table, ended once.
        let returned = unsafe { ibv_destroy_flow(raw.as_ptr()) };
        zero_or_errno(VERB, || self.describe(), returned)
    }
}
