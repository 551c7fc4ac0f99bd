//! Raw packet queue pairs, and attaching flow rules to queue pairs.

#![allow(unsafe_code)]

use rdma_sys::{IBV_QP_PORT, IBV_QP_STATE, ibv_create_flow, ibv_destroy_flow, ibv_qp_attr};

use super::pair::QueuePair;
use super::state::QpState;
use crate::convert::{non_null, zero_or_errno};
use crate::error::{Error, ErrorKind, Result};
use crate::flow::{FlowId, FlowRule, Packed};
use crate::transport::{DuplexTransport, RawPacket};

impl QueuePair<RawPacket> {
    /// Moves the queue pair from RESET through INIT and RTR to RTS. It can then send, and receives
    /// the packets that match its [flow rules](Self::create_flow).
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the queue pair is in another state or the port does not
    /// exist.
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
    /// qp.create_flow(&FlowRule::new(1, [FlowSpec::dst_mac([2, 0, 0, 0, 0, 1])]))?;
    /// let mut frame = pd.buf(64)?;
    /// frame[..6].fill(0xff); // broadcast
    /// qp.post_send(wr::send(frame))?;
    /// # Ok::<(), ibverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_modify_qp")]
    pub fn start(&mut self, port_num: u8) -> Result<()> {
        let mut init = ibv_qp_attr {
            qp_state: QpState::INIT.0,
            port_num,
            ..Default::default()
        };
        self.handle()
            .modify_raw("INIT", &mut init, IBV_QP_STATE | IBV_QP_PORT)?;
        for (name, state) in [("RTR", QpState::RTR), ("RTS", QpState::RTS)] {
            let mut attr = ibv_qp_attr {
                qp_state: state.0,
                ..Default::default()
            };
            self.handle().modify_raw(name, &mut attr, IBV_QP_STATE)?;
        }
        Ok(())
    }
}

impl<T: DuplexTransport> QueuePair<T> {
    /// Attaches a flow rule: the queue pair receives the packets that match it until the rule is
    /// [destroyed](Self::destroy_flow) or the queue pair is. This works for raw packet and datagram
    /// queue pairs on devices with flow steering.
    ///
    /// # Errors
    /// - [`ErrorKind::Unsupported`] if the device has no flow steering, as Soft-RoCE and
    ///   Soft-iWARP.
    /// - [`ErrorKind::PermissionDenied`] without `CAP_NET_RAW`.
    /// - [`ErrorKind::InvalidInput`] for headers in the wrong order, or for a queue pair of another
    ///   type.
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
    ///         FlowSpec::dst_mac([0x02, 0, 0, 0, 0, 0x01]),
    ///         FlowSpec::dst_udp_port(4791),
    ///     ],
    /// );
    /// let flow = qp.create_flow(&rule)?;
    /// // receive packets, and then
    /// qp.destroy_flow(flow)?;
    /// # Ok(()) }
    /// ```
    #[doc(alias = "ibv_create_flow")]
    pub fn create_flow(&mut self, rule: &FlowRule) -> Result<FlowId> {
        const VERB: &str = "ibv_create_flow";
        let what = || {
            format!(
                "a flow rule with {1} headers on {0}",
                self.describe(),
                rule.specs.len()
            )
        };
        let qp = self.live(VERB)?.as_ptr();
        let mut packed =
            Packed::new(rule).ok_or_else(|| Error::new(ErrorKind::InvalidInput, VERB, what()))?;
        let raw = non_null(VERB, what, || {
            // SAFETY: the queue pair is alive. `Packed` holds the attributes followed by the number
            // of specifications that they state, and lives during the call.
            unsafe { ibv_create_flow(qp, packed.as_mut_ptr()) }
        })?;
        Ok(self.tables.flows.add(raw))
    }

    /// Detaches a flow rule. Destroying the queue pair detaches all its rules.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidInput`] if the rule is not attached to this queue pair.
    #[doc(alias = "ibv_destroy_flow")]
    pub fn destroy_flow(&mut self, flow: FlowId) -> Result<()> {
        const VERB: &str = "ibv_destroy_flow";
        let Some(raw) = self.tables.flows.take(flow) else {
            let what = format!("the flow rule is not attached to {}", self.describe());
            return Err(Error::new(ErrorKind::InvalidInput, VERB, what));
        };
        // SAFETY: `create_flow` created it, and taking it out of the table makes this the only
        // call.
        let returned = unsafe { ibv_destroy_flow(raw.as_ptr()) };
        zero_or_errno(VERB, || self.describe(), returned)
    }
}
