//! Holds a specification against what this program does.

use std::time::Duration;

use super::limits::{MAX_BUFFERS, MAX_DEPTH, MAX_QPS, MAX_TIME};
use super::side::Limit;
use super::spec::Spec;
use crate::args::options::Cm;
use crate::error::{Error, Result};
use crate::plan::{MAX_MESSAGE, Plan, Service};
use crate::tuning::Tuning;
use crate::units::{Size, show_time};

impl Spec {
    /// Checks every number against what this program does. The server calls it on what it was sent.
    ///
    /// # Errors
    /// Says which number, what the limit is, and what to do.
    pub fn check(&self) -> Result<()> {
        if !self.test.moves_data() {
            return Ok(());
        }
        if self.msg_size == 0 {
            return Err(Error::limit(
                "message size 0: a message has at least 1 byte; give --msg-size (-m) a size such as 64K",
            ));
        }
        if self.msg_size > MAX_MESSAGE {
            return Err(Error::limit(format!(
                "message of {}: the limit is {}; give --msg-size (-m) a smaller size",
                Size(self.msg_size),
                Size(MAX_MESSAGE)
            )));
        }
        if let Some(kind) = self.test.socket() {
            if self.msg_size > kind.max_message() {
                return Err(Error::limit(format!(
                    "message of {}: {} carries at most {} bytes in one; give --msg-size (-m) a smaller size",
                    Size(self.msg_size),
                    kind.name(),
                    kind.max_message()
                )));
            }
            if self.qps > 1 || self.tuning != Tuning::default() {
                return Err(Error::limit(format!(
                    "{}: several queue pairs (--qps), rate, warm-up and what tunes RDMA are not for tests over sockets; leave them away",
                    self.test.name()
                )));
            }
            if self.sockets.client_buffers > MAX_BUFFERS || self.sockets.server_buffers > MAX_BUFFERS {
                return Err(Error::limit(format!(
                    "sockets' buffers above {}: give --sock-buf-size (-sb) less",
                    Size(MAX_BUFFERS.into())
                )));
            }
            if self.verify && kind.is_datagram() && self.msg_size < 8 && !self.test.is_latency() {
                return Err(Error::limit(
                    "--verify: a datagram of fewer than 8 bytes cannot say which one it is; give --msg-size (-m) at least 8",
                ));
            }
        }
        if self.depth == 0 || self.depth > MAX_DEPTH {
            return Err(Error::limit(format!("depth of {}: give --depth a number from 1 to {MAX_DEPTH}", self.depth)));
        }
        if self.qps == 0 || self.qps > MAX_QPS {
            return Err(Error::limit(format!("{} queue pairs: give --qps a number from 1 to {MAX_QPS}", self.qps)));
        }
        self.tuning.check()?;
        if self.test.socket().is_some() && self.tuning != Tuning::default() {
            return Err(Error::limit(format!(
                "{}: of the options that tune a test, one over sockets has --cpu-affinity (-ca) only",
                self.test.name()
            )));
        }
        if let Some(plan) = self.test.plan() {
            self.check_plan(plan)?;
        }
        if let Some(mtu) = self.mtu.filter(|m| ![256, 512, 1024, 2048, 4096].contains(m)) {
            return Err(Error::limit(format!("MTU of {mtu}: give --mtu (-mt) one of 256, 512, 1024, 2048 and 4096")));
        }
        match self.limit {
            Limit::Messages(0) => return Err(Error::limit("0 messages: give --messages (-n) at least 1")),
            Limit::Time(t) if t.is_zero() => {
                return Err(Error::limit("a test of 0 s measures nothing: give --time (-t) a time such as 2"));
            }
            Limit::Time(t) if t > MAX_TIME => {
                return Err(Error::limit(format!(
                    "a test of {}: the limit is 7 d; give --time (-t) less",
                    show_time(t)
                )));
            }
            _ => {}
        }
        for (side, who) in [(&self.client, "this end"), (&self.server, "the server")] {
            let t = side.timeout;
            if t < Duration::from_millis(10) || t > Duration::from_secs(86_400) {
                return Err(Error::limit(format!(
                    "timeout of {} for {who}: give --timeout (-to) a time from 10ms to 1d",
                    show_time(t)
                )));
            }
        }
        Ok(())
    }

    fn check_plan(&self, plan: Plan) -> Result<()> {
        let name = self.test.name();
        if plan.verb.is_atomic() && self.msg_size != 8 {
            return Err(Error::limit(format!(
                "message of {}: an atomic has 8 bytes; leave --msg-size (-m) away for {name}",
                Size(self.msg_size)
            )));
        }
        if plan.is_latency() && self.qps > 1 {
            return Err(Error::limit(format!("{} queue pairs: {name} has one; leave --qps away", self.qps)));
        }
        if self.use_cm == Cm::On && plan.service != Service::Rc {
            return Err(Error::limit(format!(
                "{name} by rdma_cm: it connects RC here, not {}; leave --use-cm (-cm1) away",
                plan.service
            )));
        }
        if !self.tuning.warm_up.is_zero() && matches!(self.limit, Limit::Messages(_)) {
            return Err(Error::limit(
                "a test by count has no warm-up: give --time (-t) instead of --messages (-n), or leave --warm-up away",
            ));
        }
        if self.use_cm == Cm::On && self.tuning.marks_packets() {
            return Err(Error::limit(
                "--service-level (-sl), --traffic-class and --pkey-index are for connections that rperf makes itself: leave --use-cm (-cm1) away",
            ));
        }
        Ok(())
    }
}
