//! Fits a specification to a device.

use std::ops::Range;

use super::config::Spec;
use super::limits::{
    HEARTBEAT_INTERVAL, LATENCY_DEPTH, LATENCY_DEPTH_OF_BUFFERS, MAX_DEPTH, MAX_MEMORY,
    VERIFY_MEMORY,
};
use super::plan::{Pattern, Plan, Service, Verb};
use super::shape::Shape;
use super::side::Limit;
use crate::common::error::{Error, Result};
use crate::common::units::{Size, Style};

/// What a device allows, as far as it bounds a test.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// The device's name, for errors.
    pub device: String,
    /// The largest message of its port.
    pub max_msg: u64,
    /// The deepest queue.
    pub max_qp_wr: u32,
    /// The longest completion queue.
    pub max_cqe: u32,
    /// The port's active MTU: the largest datagram.
    pub mtu: u32,
    /// Whether messages can carry immediate data, and queue pairs be unreliable (iWARP: neither).
    pub infiniband: bool,
    /// Sizes of messages that it sends faster where each asks for a completion.
    pub signalled: Range<u64>,
    /// Whether it has atomics.
    pub atomics: bool,
    /// The longest shared receive queue; 0 where it has none.
    pub max_srq_wr: u32,
    /// Whether it has extended reliable connections.
    pub xrc: bool,
}

impl Spec {
    /// Bytes of the buffers that one end takes for it, at most.
    pub fn memory(&self) -> u64 {
        if self.test.socket().is_some() {
            return self.msg_size;
        }
        let looked_at = self.touches_payload();
        let buffers = if looked_at {
            u64::from(self.depth) * 2 + 12
        } else {
            2
        };
        let most = if looked_at {
            VERIFY_MEMORY + self.msg_size.saturating_mul(12 * u64::from(self.qps))
        } else {
            u64::MAX
        };
        buffers
            .saturating_mul(self.msg_size)
            .min(most)
            .saturating_mul(u64::from(self.threads) * u64::from(self.receivers()))
    }

    /// Fits the test to a device: lowers the depth where the device or memory needs it.
    ///
    /// # Errors
    /// The message is too large for the device, or for the memory a test may use.
    pub fn fit(&self, bounds: &Bounds) -> Result<Shape> {
        self.check()?;
        let plan = self.plan_on(bounds)?;
        let max_msg = if plan.service == Service::Ud {
            u64::from(bounds.mtu)
        } else {
            bounds.max_msg
        };
        if self.msg_size > max_msg {
            let what = if plan.service == Service::Ud {
                "one datagram"
            } else {
                "one message"
            };
            return Err(Error::limit(format!(
                "message of {}: {} carries at most {} in {what}; give --msg-size (-m) a smaller size",
                Size(self.msg_size),
                bounds.device,
                Size(max_msg)
            )));
        }
        let mut depth = match plan.is_latency() {
            true if self.touches_payload() => self.depth.min(LATENCY_DEPTH_OF_BUFFERS),
            true => self.depth.min(LATENCY_DEPTH),
            false => self.depth.saturating_mul(self.qps).min(MAX_DEPTH),
        };
        if let Limit::Messages(n) = self.limit {
            depth = depth.min(u32::try_from(n).unwrap_or(u32::MAX).max(4));
        }
        // A queue holds depth, depth / batch + 1 credits (at most 5 where depth ≥ 4, depth + 1
        // below) and one, and receives that wait for others.
        let together = self.tuning.recv_list.unwrap_or(1);
        let queues = self.qps.max(self.receivers());
        let room = bounds.max_qp_wr.min(bounds.max_cqe / 2 / queues);
        let room = if self.tuning.srq || plan.service == Service::Xrc {
            room.min(Self::srq_room(bounds)?)
        } else {
            room
        };
        depth = depth.min(room.saturating_sub(6 + together)).max(1);
        if self.touches_payload() {
            // Both directions have their own buffers: depth to send, depth and the credits to
            // receive.
            let buffers = u32::try_from(VERIFY_MEMORY / self.msg_size / 2 / u64::from(queues))
                .unwrap_or(u32::MAX);
            depth = depth.min(buffers.saturating_sub(6)).max(1);
        }
        Ok(self.shape(depth, plan, bounds))
    }

    /// Receives that a shared queue holds.
    fn srq_room(bounds: &Bounds) -> Result<u32> {
        if bounds.max_srq_wr == 0 {
            return Err(Error::limit(format!(
                "needs shared receive queues, which {} lacks",
                bounds.device
            )));
        }
        Ok(bounds.max_srq_wr)
    }

    /// What the test does on this device.
    fn plan_on(&self, bounds: &Bounds) -> Result<Plan> {
        let plan = self
            .test
            .plan()
            .ok_or_else(|| Error::limit("uses no RDMA device"))?;
        let lacks = |what: &dyn std::fmt::Display| {
            Err(Error::limit(format!(
                "needs {what}, which {} lacks",
                bounds.device
            )))
        };
        match plan.service {
            Service::Uc | Service::Ud if !bounds.infiniband => return lacks(&plan.service),
            Service::Xrc if !bounds.xrc => return lacks(&plan.service),
            _ => {}
        }
        if plan.verb.is_atomic() && !bounds.atomics {
            return lacks(&"atomics");
        }
        let plan = match self.immediate {
            Some(false) => plan.without_immediate(),
            Some(true) if plan.verb == Verb::WriteImm && !bounds.infiniband => {
                return lacks(&"writes with immediate data");
            }
            None if !bounds.infiniband => plan.without_immediate(),
            _ => plan,
        };
        if self.tuning.access_received
            && plan.verb == Verb::Write
            && plan.pattern != Pattern::Polled
        {
            return lacks(
                &"writes with immediate data, as nobody is told of others (--access-received, -ar)",
            );
        }
        Ok(plan)
    }

    /// The shape on a device with a depth that both ends have agreed on.
    ///
    /// # Errors
    /// The buffers of that depth would take more memory than a test may use.
    pub fn agreed(&self, depth: u32, plan: Plan, bounds: &Bounds) -> Result<Shape> {
        if depth == 0 || depth > MAX_DEPTH {
            return Err(Error::protocol(format!(
                "the peer wants a depth of {depth}"
            )));
        }
        let shape = self.shape(depth, plan, bounds);
        if shape.memory() > MAX_MEMORY {
            return Err(Error::limit(format!(
                "{} of buffers: the limit is {}; give --msg-size (-m), --qps or --threads less",
                Style::default().size(shape.memory()),
                Size(MAX_MEMORY)
            )));
        }
        Ok(shape)
    }

    /// Receivers of each message.
    fn receivers(&self) -> u32 {
        self.multicast.map_or(1, |multicast| multicast.receivers)
    }

    /// Whether each message is looked at once it has arrived.
    fn touches_payload(&self) -> bool {
        self.verify || self.tuning.access_received
    }

    /// Messages whose completion may be told together, so that what a limited rate moves is known
    /// to a hundredth of a second.
    fn due_together(&self) -> u32 {
        let Some(rate) = self.tuning.rate_limit else {
            return u32::MAX;
        };
        u32::try_from(rate / 100 / self.msg_size.max(1)).unwrap_or(u32::MAX)
    }

    fn shape(&self, depth: u32, plan: Plan, bounds: &Bounds) -> Shape {
        let batch = (depth / 4).max(1);
        let most = (depth / 2 / self.qps).max(1);
        let signalled = !plan.verb.fetches() && bounds.signalled.contains(&self.msg_size);
        let usual = match plan.is_latency() {
            _ if signalled => 1,
            // Nobody waits for them: as few as the send queue has room for.
            true => most,
            false => batch.min(self.due_together()) / self.qps,
        };
        let signal_every = self.tuning.signal_every.unwrap_or(usual);
        Shape {
            tuning: self.tuning,
            threads: self.threads,
            flip: self.flip,
            receivers: self.receivers(),
            heartbeat: (self.client.timeout.min(self.server.timeout) / 4).min(HEARTBEAT_INTERVAL),
            plan,
            msg_size: u32::try_from(self.msg_size).unwrap_or(u32::MAX),
            qps: self.qps,
            depth,
            batch,
            // What all queue pairs together may leave unsaid stays below the depth.
            signal_every: if self.touches_payload() {
                1
            } else {
                signal_every.clamp(1, most)
            },
            credited: plan.verb.takes_receives() && (!self.flood || plan.service.is_reliable()),
            limit: self.limit,
            verify: self.verify,
        }
    }
}
