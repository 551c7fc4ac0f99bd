//! Holds a specification against what this program does.

use std::time::Duration;

use super::config::Spec;
use super::limits::{MAX_BUFFERS, MAX_DEPTH, MAX_QPS, MAX_THREADS, MAX_TIME};
use super::plan::{MAX_MESSAGE, Pattern, Plan, Service};
use super::side::Limit;
use super::test::Test;
use super::tuning::Tuning;
use crate::common::error::{Error, Result};
use crate::common::units::{Size, show_time};
use crate::rperf::spec::modes::Cm;

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
            // That data is read once it has arrived is all that both have.
            let tuning = Tuning {
                access_received: false,
                ..self.tuning
            };
            if self.qps > 1 || self.threads > 1 || tuning != Tuning::default() {
                return Err(Error::limit(format!(
                    "{}: several queue pairs (--qps) or threads, rate, warm-up and what tunes RDMA are not for tests over sockets; leave them away",
                    self.test.name()
                )));
            }
            if self.sockets.client_buffers > MAX_BUFFERS
                || self.sockets.server_buffers > MAX_BUFFERS
            {
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
            return Err(Error::limit(format!(
                "depth of {}: give --depth a number from 1 to {MAX_DEPTH}",
                self.depth
            )));
        }
        if self.qps == 0 || self.qps > MAX_QPS {
            return Err(Error::limit(format!(
                "{} queue pairs: give --qps a number from 1 to {MAX_QPS}",
                self.qps
            )));
        }
        self.check_threads()?;
        self.check_multicast()?;
        self.tuning.check()?;
        let one_way = self.test.plan().map_or(!self.test.is_latency(), |plan| {
            plan.pattern == Pattern::OneWay
        });
        if self.flip && !one_way {
            return Err(Error::limit(format!(
                "{}: --flip (-f) is for tests with a sender and a receiver; leave it away",
                self.test.name()
            )));
        }
        if let Some(plan) = self.test.plan() {
            self.check_plan(plan)?;
        }
        if let Some(mtu) = self
            .mtu
            .filter(|m| ![256, 512, 1024, 2048, 4096].contains(m))
        {
            return Err(Error::limit(format!(
                "MTU of {mtu}: give --mtu (-mt) one of 256, 512, 1024, 2048 and 4096"
            )));
        }
        match self.limit {
            Limit::Messages(0) => {
                return Err(Error::limit("0 messages: give --messages (-n) at least 1"));
            }
            Limit::Time(t) if t.is_zero() => {
                return Err(Error::limit(
                    "a test of 0 s measures nothing: give --time (-t) a time such as 2",
                ));
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

    fn check_multicast(&self) -> Result<()> {
        let Some(multicast) = self.multicast else {
            return Ok(());
        };
        let is_ours = self.test == Test::UdBw && !self.flip && self.threads == 1 && self.qps == 1;
        if !is_ours || self.use_cm == Cm::On || self.marks_packets() {
            return Err(Error::limit(
                "--multicast (-g): ud_bw sends to a group, from one queue pair; leave other tests, --flip, --threads, --qps, --use-cm and what marks packets away",
            ));
        }
        if multicast.receivers == 0 || multicast.receivers > MAX_QPS {
            return Err(Error::limit(format!(
                "{} receivers: give --multicast (-g) a number from 1 to {MAX_QPS}",
                multicast.receivers
            )));
        }
        match multicast.group.filter(|group| !group.is_multicast()) {
            Some(group) => Err(Error::limit(format!(
                "{group} is no multicast address: give --multicast-group one such as 239.255.1.2, or leave it away"
            ))),
            None => Ok(()),
        }
    }

    /// Whether packets carry something that only a connection made here gives them.
    pub fn marks_packets(&self) -> bool {
        self.tuning.marks_packets()
            || self.client.path.marks_packets()
            || self.server.path.marks_packets()
    }

    fn check_threads(&self) -> Result<()> {
        if self.threads == 0 || self.threads > MAX_THREADS {
            return Err(Error::limit(format!(
                "{} threads: give --threads a number from 1 to {MAX_THREADS}",
                self.threads
            )));
        }
        if self.threads * self.qps > MAX_QPS {
            return Err(Error::limit(format!(
                "{} threads of {} queue pairs: the limit is {MAX_QPS} in all; give --threads or --qps less",
                self.threads, self.qps
            )));
        }
        match self.limit {
            // No message at all is refused below, with a better word.
            Limit::Messages(n) if n > 0 && n < self.threads.into() => Err(Error::limit(format!(
                "{n} messages for {} threads: give --messages (-n) at least one for each",
                self.threads
            ))),
            _ => Ok(()),
        }
    }

    fn check_plan(&self, plan: Plan) -> Result<()> {
        let name = self.test.name();
        if plan.verb.is_atomic() && self.msg_size != 8 {
            return Err(Error::limit(format!(
                "message of {}: an atomic has 8 bytes; leave --msg-size (-m) away for {name}",
                Size(self.msg_size)
            )));
        }
        if plan.is_latency() && self.threads > 1 {
            return Err(Error::limit(format!(
                "{} threads: {name} has one; leave --threads away",
                self.threads
            )));
        }
        if plan.is_latency() && self.qps > 1 {
            return Err(Error::limit(format!(
                "{} queue pairs: {name} has one; leave --qps away",
                self.qps
            )));
        }
        if self.use_cm == Cm::On && plan.service == Service::Xrc {
            return Err(Error::limit(format!(
                "{name} by rdma_cm: rperf connects both halves of {} itself, by TCP; leave --use-cm (-cm1) away",
                plan.service
            )));
        }
        if self.use_cm == Cm::On && plan.service == Service::Uc {
            return Err(Error::limit(format!(
                "{name} by rdma_cm: it connects RC and finds UD, but makes no {} in its port spaces; leave --use-cm (-cm1) away",
                plan.service
            )));
        }
        if !self.tuning.warm_up.is_zero() && matches!(self.limit, Limit::Messages(_)) {
            return Err(Error::limit(
                "a test by count has no warm-up: give --time (-t) instead of --messages (-n), or leave --warm-up away",
            ));
        }
        if self.use_cm == Cm::On && self.marks_packets() {
            return Err(Error::limit(
                "--service-level (-sl), --traffic-class, --pkey-index, --static-rate (-sr) and --src-path-bits (-sp) are for connections that rperf makes itself: leave --use-cm (-cm1) away",
            ));
        }
        if !plan.verb.takes_receives() && (self.tuning.srq || self.tuning.recv_list.is_some()) {
            return Err(Error::limit(format!(
                "{name} receives nothing: leave --srq and --recv-list away"
            )));
        }
        Ok(())
    }
}
