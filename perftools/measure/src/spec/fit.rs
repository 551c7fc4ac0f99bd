//! Fits a specification to a device: derives the queue sizes and checks the capabilities.

use std::fmt::Display;
use std::ops::Range;
use std::time::Duration;

use base::error::{Error, Result};
use base::units::{Size, Style};

use super::config::Spec;
use super::limits::{
    HEARTBEAT_INTERVAL, LATENCY_DEPTH, LATENCY_DEPTH_OWN_BUFFERS, MAX_DEPTH, MAX_MEMORY,
    MAX_SEND_SLOTS, VERIFY_MEMORY,
};
use super::plan::{Pattern, Plan, Service, Verb};
use super::shape::Shape;
use super::side::Limit;
use super::test::Test;

/// Capabilities and limits of a device that bound a test.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    /// Name of the device, for error messages.
    pub device: String,
    /// Maximum message size of the port in bytes.
    pub max_msg: u64,
    /// Maximum number of requests in a send or receive queue.
    pub max_qp_wr: u32,
    /// Maximum number of entries in a completion queue.
    pub max_cqe: u32,
    /// Active MTU of the port in bytes, which is the maximum size of a datagram.
    pub mtu: u32,
    /// Services of the device. Creating a queue pair shows if an InfiniBand or RoCE device has DC.
    pub services: Vec<Service>,
    /// `false` on iWARP, which has no immediate data, and where every RDMA read has a completion.
    pub infiniband: bool,
    /// Maximum size of an RDMA read in bytes; 0 if the device has none.
    pub max_read: u64,
    /// Maximum size of an RDMA write in bytes; 0 if the device has none.
    pub max_write: u64,
    /// Message sizes in bytes that the device sends faster if each message requests a completion.
    pub signaled_sizes: Range<u64>,
    /// `true` if the device supports atomics.
    pub atomics: bool,
    /// Maximum number of requests in a shared receive queue; 0 if the device has none.
    pub max_srq_wr: u32,
}

impl Bounds {
    /// Returns the bounds of a device that supports everything, up to the limits of this program.
    pub(super) fn unlimited() -> Self {
        Self {
            device: String::new(),
            max_msg: u64::MAX,
            max_qp_wr: u32::MAX,
            max_cqe: u32::MAX,
            mtu: u32::MAX,
            services: vec![
                Service::Rc,
                Service::Uc,
                Service::Ud,
                Service::Xrc,
                Service::Srd,
                Service::Dc,
            ],
            infiniband: true,
            max_read: u64::MAX,
            max_write: u64::MAX,
            signaled_sizes: 0..0,
            atomics: true,
            max_srq_wr: u32::MAX,
        }
    }

    /// Returns what the device lacks for a plan.
    fn lacks(&self, plan: Plan) -> Option<String> {
        match plan.verb {
            _ if !self.services.contains(&plan.service) => Some(plan.service.to_string()),
            Verb::Read if self.max_read == 0 => Some("RDMA reads".to_owned()),
            Verb::Write | Verb::WriteImm if self.max_write == 0 => Some("RDMA writes".to_owned()),
            verb if verb.is_atomic() && !self.atomics => Some("atomics".to_owned()),
            _ => None,
        }
    }

    /// Returns the names of the tests with the same operation over another service of the device.
    /// Only creating a queue pair shows if it has DC.
    fn tests_like(&self, plan: Plan) -> Vec<&'static str> {
        let is_like = |test: Test| {
            test.plan().is_some_and(|other| {
                let is_same = (other.verb, other.pattern) == (plan.verb, plan.pattern);
                is_same && other.service != Service::Dc && self.lacks(other).is_none()
            })
        };
        let tests = Test::names().filter_map(|name| Test::from_name(name).ok());
        let tests = tests.filter(|test| is_like(*test) && !test.verifies());
        tests.map(Test::name).collect()
    }

    /// Returns the error of a device that lacks `what` for a plan.
    pub(crate) fn unsupported(&self, plan: Plan, what: &dyn Display) -> Error {
        let error = Error::limit(format!("{} does not support {what}", self.device));
        error.with_help(match &*self.tests_like(plan) {
            [] => "select another device with --id (-i)".to_owned(),
            tests => format!("run {}", tests.join(" or ")),
        })
    }
}

impl Spec {
    /// Fits the test to a device. Lowers the depth if the device or the memory limit requires it.
    ///
    /// # Errors
    /// A limit error if a value is out of range, the device lacks a capability, or the message is
    /// too large for the device.
    pub fn fit(&self, bounds: &Bounds) -> Result<Shape> {
        self.check()?;
        let plan = self.plan_on(bounds)?;
        let max_msg = match plan.verb {
            _ if plan.service == Service::Ud => u64::from(bounds.mtu),
            Verb::Read => bounds.max_read,
            Verb::Write | Verb::WriteImm => bounds.max_write,
            _ => bounds.max_msg,
        };
        if self.msg_size > max_msg {
            let what = if plan.service == Service::Ud {
                "one datagram"
            } else {
                "one message"
            };
            return Err(Error::limit(format!(
                "message size of {}: the maximum of {} is {} in {what}",
                Size(self.msg_size),
                bounds.device,
                Size(max_msg)
            ))
            .with_help("set --msg-size (-m) lower"));
        }
        // Each queue has slots for all messages in flight, or for its share.
        let shares = if self.shape(1, plan, bounds).takes_turns() {
            self.qps
        } else {
            1
        };
        let mut depth = match plan.is_latency() {
            true if self.touches_payload() => self.depth.min(LATENCY_DEPTH_OWN_BUFFERS),
            true => self.depth.min(LATENCY_DEPTH),
            false => {
                let queues = (self.qps / shares * self.threads).max(1);
                let most = (MAX_SEND_SLOTS / queues).min(MAX_DEPTH);
                self.depth.saturating_mul(self.qps).min(most)
            }
        };
        if let Limit::Messages(n) = self.limit {
            depth = depth.min(u32::try_from(n).unwrap_or(u32::MAX).max(4));
        }
        // A queue needs slots for `depth` messages, for `depth / batch + 1` credits (at most 5 if
        // the depth is 4 or more, else depth + 1), for one more message, and for receive requests
        // that wait to be reposted as a batch.
        let receive_batch = self.tuning.recv_list.unwrap_or(1);
        let queues = self.qps.max(self.receivers());
        let fits = |slots: u32| slots.saturating_sub(6 + receive_batch).max(1);
        let slots = bounds.max_qp_wr.min(bounds.max_cqe / 2 / queues);
        depth = depth.min(fits(slots).saturating_mul(shares));
        if self.tuning.srq || plan.service.always_shares_receives() {
            depth = depth.min(fits(Self::max_srq_requests(bounds)?));
        }
        if self.touches_payload() {
            // Each direction has its own buffers: `depth` to send, and `depth` plus the credits to
            // receive.
            let buffers = u32::try_from(VERIFY_MEMORY / self.msg_size / 2 / u64::from(queues))
                .unwrap_or(u32::MAX);
            depth = depth.min(buffers.saturating_sub(6)).max(1);
        }
        let shape = self.shape(depth, plan, bounds);
        if shape.completions() > bounds.max_cqe {
            return Err(Error::limit(format!(
                "{queues} queue pairs of one thread need a completion queue of {} entries: the \
                 maximum of {} is {}",
                shape.completions(),
                bounds.device,
                bounds.max_cqe
            ))
            .with_help("set --qps lower, or --threads higher and --qps to the share of a thread"));
        }
        Ok(shape)
    }

    /// Returns the maximum number of requests in a shared receive queue.
    fn max_srq_requests(bounds: &Bounds) -> Result<u32> {
        if bounds.max_srq_wr == 0 {
            return Err(Error::limit(format!(
                "{} does not support shared receive queues",
                bounds.device
            ))
            .with_help("remove --srq"));
        }
        Ok(bounds.max_srq_wr)
    }

    /// Returns the plan of the test on this device.
    fn plan_on(&self, bounds: &Bounds) -> Result<Plan> {
        let plan = self
            .test
            .plan()
            .ok_or_else(|| Error::limit("the test uses no RDMA device"))?;
        let unsupported = |what: &dyn Display| bounds.unsupported(plan, what);
        if let Some(what) = bounds.lacks(plan) {
            return Err(unsupported(&what));
        }
        let plan = match self.immediate {
            Some(false) => plan.without_immediate(),
            Some(true) if plan.verb.takes_receives() && !bounds.infiniband => {
                let writes = plan.verb.is_one_sided();
                let what = if writes { "RDMA writes" } else { "sends" };
                return Err(unsupported(&format!("{what} with immediate data"))
                    .with_help("remove --immediate on"));
            }
            Some(true) => plan.with_immediate(),
            None if !bounds.infiniband => plan.without_immediate(),
            _ => plan,
        };
        if plan.pattern == Pattern::Polled && !plan.service.is_ordered() {
            let what = "polling memory for RDMA writes over SRD, whose packets arrive in any order";
            return Err(unsupported(&what).with_help("remove --immediate off"));
        }
        if self.tuning.access_received
            && plan.verb == Verb::Write
            && plan.pattern != Pattern::Polled
        {
            // Without immediate data the receiver does not learn when a write has arrived.
            return Err(unsupported(
                &"RDMA writes with immediate data, which --access-received needs",
            )
            .with_help("remove --access-received (-ar)"));
        }
        Ok(plan)
    }

    /// Returns the shape for a device and a depth on which both ends agreed.
    ///
    /// # Errors
    /// A protocol error if the depth is out of range. A limit error if the buffers take more memory
    /// than a test may use.
    pub fn shape_for_depth(&self, depth: u32, plan: Plan, bounds: &Bounds) -> Result<Shape> {
        if depth == 0 || depth > MAX_DEPTH {
            return Err(Error::protocol(format!(
                "the peer proposed a queue depth of {depth}: expected 1 to {MAX_DEPTH}"
            )));
        }
        let shape = self.shape(depth, plan, bounds);
        if shape.memory() > MAX_MEMORY {
            return Err(Error::limit(format!(
                "buffers of {}: the maximum is {}",
                Style::default().size(shape.memory()),
                Size(MAX_MEMORY)
            ))
            .with_help("set --msg-size (-m), --qps or --threads lower"));
        }
        Ok(shape)
    }

    /// Returns the number of receivers of each message.
    fn receivers(&self) -> u32 {
        self.multicast.map_or(1, |multicast| multicast.receivers)
    }

    /// Returns `true` if the receiver reads the payload of each message.
    fn touches_payload(&self) -> bool {
        self.verify || self.tuning.access_received
    }

    /// Returns the maximum number of sends per completion that keeps the byte count of a
    /// rate-limited test accurate to 10 ms.
    fn max_sends_per_completion(&self) -> u32 {
        let Some(rate) = self.tuning.rate_limit else {
            return u32::MAX;
        };
        u32::try_from(rate / 100 / self.msg_size.max(1)).unwrap_or(u32::MAX)
    }

    /// Returns the interval of the heartbeats, which is the same at both ends.
    pub(crate) fn heartbeat(&self) -> Duration {
        (self.client.timeout.min(self.server.timeout) / 4).min(HEARTBEAT_INTERVAL)
    }

    fn shape(&self, depth: u32, plan: Plan, bounds: &Bounds) -> Shape {
        let batch = (depth / 4).max(1);
        let max = (depth / 2 / self.qps).max(1);
        let default = if bounds.signaled_sizes.contains(&self.msg_size) && !plan.verb.fetches() {
            1
        } else if plan.is_latency() {
            // A latency test does not wait for send completions: as few as the send queue allows.
            max
        } else {
            batch.min(self.max_sends_per_completion()) / self.qps
        };
        let signal_every = self.tuning.signal_every.unwrap_or(default);
        // `ibverbs` requests a completion of each RDMA read over iWARP.
        let signals_all = self.touches_payload()
            || plan.is_round_trip()
            || plan.verb.fetches() && !bounds.infiniband;
        Shape {
            tuning: self.tuning,
            threads: self.threads,
            flip: self.flip,
            receivers: self.receivers(),
            infiniband: bounds.infiniband,
            heartbeat: self.heartbeat(),
            plan,
            msg_size: u32::try_from(self.msg_size).unwrap_or(u32::MAX),
            qps: self.qps,
            depth,
            batch,
            // The sends without a completion on all queue pairs together stay below the depth.
            signal_every: if signals_all {
                1
            } else {
                signal_every.clamp(1, max)
            },
            credited: plan.verb.takes_receives() && (!self.flood || plan.service.is_reliable()),
            // A receiver that polls its memory sees each write by itself.
            confirms_writes: !bounds.infiniband
                && plan.verb == Verb::Write
                && plan.pattern != Pattern::Polled,
            limit: self.limit,
            verify: self.verify,
        }
    }
}
