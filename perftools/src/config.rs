//! The checked configuration: the one thing that control, transport and engines see of what was asked for.
//!
//! [`Spec`] is a whole test as it crosses the wire. Both ends check it with the same code: [`Spec::check`] against what
//! this program can do, [`Spec::fit`] against a device. What comes out of `fit` is a [`Shape`]: the numbers an engine runs by.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::args::options::{Cm, DeviceId, Options, Wait};
use crate::args::sockets::SocketOptions;
use crate::engine::pin::CpuList;
use crate::error::{Error, Result};
pub use crate::plan::MAX_MESSAGE;
use crate::plan::{Pattern, Plan, Service, Verb};
use crate::test::Test;
use crate::tuning::Tuning;
use crate::units::{Size, show_time};

/// The largest buffers of sockets.
const MAX_BUFFERS: u32 = 1 << 30;
/// The most messages in flight.
pub const MAX_DEPTH: u32 = 16_384;
/// The most queue pairs of one test.
pub const MAX_QPS: u32 = 256;
/// The memory that one end of a test may register.
pub const MAX_MEMORY: u64 = 1 << 30;
/// The memory that distinct buffers of `--verify` fill before the depth is lowered for them.
const VERIFY_MEMORY: u64 = 64 << 20;
/// Messages in flight where nothing is asked for.
const DEFAULT_DEPTH: u32 = 128;
/// The longest test.
pub const MAX_TIME: Duration = Duration::from_secs(7 * 86_400);

/// When a test ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// After this time.
    Time(Duration),
    /// After this many messages in each direction.
    Messages(u64),
}

/// What holds for one end only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// The device asked for.
    pub id: Option<DeviceId>,
    /// How to wait for completions.
    pub wait: Wait,
    /// When to give a silent peer up.
    pub timeout: Duration,
    /// The processors to run on; none: any.
    #[serde(default)]
    pub cpus: Option<CpuList>,
    /// The place of the GID to use; none: by the address.
    #[serde(default)]
    pub gid_index: Option<u8>,
}

impl Side {
    /// An end that waits so, and gives a silent peer up after this time.
    pub fn new(wait: Wait, timeout: Duration) -> Self {
        Self { id: None, wait, timeout, cpus: None, gid_index: None }
    }
}

/// What holds for tests over sockets only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sockets {
    /// The port of the server's end; 0: any.
    pub port: u16,
    /// Bytes of the client's buffers; 0: as the system has them.
    pub client_buffers: u32,
    /// Bytes of the server's buffers.
    pub server_buffers: u32,
}

impl From<&SocketOptions> for Sockets {
    fn from(options: &SocketOptions) -> Self {
        let bytes =
            |own: Option<Size>| own.or(options.sock_buf_size).map_or(0, |s| u32::try_from(s.0).unwrap_or(u32::MAX));
        Self {
            port: options.ip_port.unwrap_or(0),
            client_buffers: bytes(options.local_sock_buf_size),
            server_buffers: bytes(options.remote_sock_buf_size),
        }
    }
}

impl Sockets {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A whole test, as the client sends it to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spec {
    /// The test.
    pub test: Test,
    /// Bytes a message.
    pub msg_size: u64,
    /// When it ends.
    pub limit: Limit,
    /// Messages in flight at most, on each queue pair.
    pub depth: u32,
    /// Queue pairs.
    pub qps: u32,
    /// RDMA writes with immediate data; none: where the link has it.
    pub immediate: Option<bool>,
    /// Unreliable services: send without regard to what the receiver is ready for.
    pub flood: bool,
    /// How to connect.
    pub use_cm: Cm,
    /// The path MTU, if not the port's.
    pub mtu: Option<u32>,
    /// Check every byte.
    pub verify: bool,
    /// How it is tuned.
    #[serde(default)]
    pub tuning: Tuning,
    /// For tests over sockets.
    #[serde(default, skip_serializing_if = "Sockets::is_default")]
    pub sockets: Sockets,
    /// The client's end.
    pub client: Side,
    /// The server's end.
    pub server: Side,
}

/// What a device allows, as far as it bounds a test.
#[derive(Clone, Debug)]
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
    /// Whether it has atomics.
    pub atomics: bool,
}

/// The numbers an engine runs by; both ends compute the same from the same [`Spec`] and depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// What to do.
    pub plan: Plan,
    /// Bytes a message.
    pub msg_size: u32,
    /// Queue pairs.
    pub qps: u32,
    /// Data messages that may be under way in one direction, on all queue pairs together.
    pub depth: u32,
    /// Messages after whose arrival the receiver returns a credit message.
    pub batch: u32,
    /// Every so many sends of a queue pair ask for a completion.
    pub signal_every: u32,
    /// Whether the receiver's credits bound the sender.
    pub credited: bool,
    /// When the test ends.
    pub limit: Limit,
    /// Payload is checked.
    pub verify: bool,
    /// How the test is tuned.
    pub tuning: Tuning,
}

impl Shape {
    /// Credit messages that may be under way in one direction.
    pub fn credits(&self) -> u32 {
        self.depth / self.batch + 1
    }

    /// Receives that each queue pair has posted before the peer may start, and again whenever one was used.
    pub fn receives(&self) -> u32 {
        if self.plan.verb.takes_receives() { self.depth + self.credits() } else { 0 }
    }

    /// Room that each send queue needs: any one may have to carry all that is under way.
    pub fn sends(&self) -> u32 {
        self.depth + self.credits() + 1
    }

    /// Places in memory that is open to the peer: one for each message under way, where each is looked at.
    pub fn slots(&self) -> u32 {
        match self.plan {
            // A number for each queue pair, as atomics of several come in no order.
            plan if plan.verb.is_atomic() => self.qps,
            // One queue pair may lag behind the others by the whole depth.
            plan if self.verify && plan.pattern != Pattern::Polled => self.depth * self.qps,
            _ => 1,
        }
    }

    /// Places that fetches bring the peer's memory into.
    pub fn places(&self) -> u32 {
        if self.verify { self.sends() * self.qps } else { 1 }
    }

    /// Bytes of such a place: whole words.
    pub fn stride(&self) -> usize {
        (self.msg_size as usize).next_multiple_of(8)
    }

    /// Time from one message to the next, where the rate is limited.
    pub fn gap(&self) -> Option<Duration> {
        let nanos = u128::from(self.msg_size) * 1_000_000_000 / u128::from(self.tuning.rate_limit?.max(1));
        Some(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    /// Whether what is sent arrives, or the connection breaks.
    pub fn is_reliable(&self) -> bool {
        self.plan.service.is_reliable()
    }
}

impl Spec {
    /// The specification that these options make for `test`.
    ///
    /// # Errors
    /// A number outside what this program does; see [`Spec::check`].
    pub fn new(test: Test, o: &Options) -> Result<Self> {
        let timeout = o.timeout.unwrap_or(Duration::from_secs(5));
        let side = |id: &Option<DeviceId>, wait: Option<Wait>, own: Option<Duration>| Side {
            id: id.clone().or_else(|| o.id.clone()),
            ..Side::new(wait.or(o.wait).unwrap_or_default(), own.unwrap_or(timeout))
        };
        let t = &o.tuning;
        let mtu = o.mtu.map(|m| u32::try_from(m.0).unwrap_or(u32::MAX));
        let limit = match o.messages {
            Some(n) => Limit::Messages(n),
            None => Limit::Time(o.time.unwrap_or(Duration::from_secs(2))),
        };
        let spec = Self {
            test,
            msg_size: o.msg_size.map_or(test.default_size(), |s| s.0),
            limit,
            depth: o.depth.unwrap_or(DEFAULT_DEPTH),
            qps: o.qps.unwrap_or(1),
            immediate: o.immediate,
            flood: o.flood,
            use_cm: o.use_cm.unwrap_or_default(),
            mtu,
            verify: o.verify || test.verifies(),
            sockets: Sockets::from(&o.sockets),
            tuning: o.tuning.tuning(),
            client: Side {
                cpus: t.local_cpu_affinity.clone().or_else(|| t.cpu_affinity.clone()),
                gid_index: t.local_gid_index.or(t.gid_index),
                ..side(&o.local_id, o.local_wait, o.local_timeout)
            },
            server: Side {
                cpus: t.remote_cpu_affinity.clone().or_else(|| t.cpu_affinity.clone()),
                gid_index: t.remote_gid_index.or(t.gid_index),
                ..side(&o.remote_id, o.remote_wait, o.remote_timeout)
            },
        };
        spec.check()?;
        Ok(spec)
    }

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

    /// Bytes of the buffers that one end takes for it, at most.
    pub fn memory(&self) -> u64 {
        if self.test.socket().is_some() {
            return self.msg_size;
        }
        let buffers = if self.verify { u64::from(self.depth) * 2 + 12 } else { 2 };
        let most =
            if self.verify { VERIFY_MEMORY + self.msg_size.saturating_mul(12 * u64::from(self.qps)) } else { u64::MAX };
        buffers.saturating_mul(self.msg_size).min(most)
    }

    /// Fits the test to a device: lowers the depth where the device or memory needs it.
    ///
    /// # Errors
    /// The message is too large for the device, or for the memory a test may use.
    pub fn fit(&self, bounds: &Bounds) -> Result<Shape> {
        self.check()?;
        let plan = self.plan_on(bounds)?;
        let max_msg = if plan.service == Service::Ud { u64::from(bounds.mtu) } else { bounds.max_msg };
        if self.msg_size > max_msg {
            let what = if plan.service == Service::Ud { "one datagram" } else { "one message" };
            return Err(Error::limit(format!(
                "message of {}: {} carries at most {} in {what}; give --msg-size (-m) a smaller size",
                Size(self.msg_size),
                bounds.device,
                Size(max_msg)
            )));
        }
        let mut depth =
            if plan.is_latency() { self.depth.min(4) } else { self.depth.saturating_mul(self.qps).min(MAX_DEPTH) };
        if let Limit::Messages(n) = self.limit {
            depth = depth.min(u32::try_from(n).unwrap_or(u32::MAX).max(4));
        }
        // A queue holds depth, depth / batch + 1 credits (at most 5 where depth ≥ 4, depth + 1 below) and one.
        let room = bounds.max_qp_wr.min(bounds.max_cqe / 2 / self.qps);
        depth = depth.min(room.saturating_sub(7)).max(1);
        if self.verify {
            // Both directions have their own buffers: depth to send, depth and the credits to receive.
            let buffers = u32::try_from(VERIFY_MEMORY / self.msg_size / 2 / u64::from(self.qps)).unwrap_or(u32::MAX);
            depth = depth.min(buffers.saturating_sub(6)).max(1);
        }
        Ok(self.shape(depth, plan))
    }

    /// What the test does on this device.
    fn plan_on(&self, bounds: &Bounds) -> Result<Plan> {
        let plan = self.test.plan().ok_or_else(|| Error::limit("uses no RDMA device"))?;
        let lacks =
            |what: &dyn std::fmt::Display| Err(Error::limit(format!("needs {what}, which {} lacks", bounds.device)));
        match plan.service {
            Service::Uc | Service::Ud if !bounds.infiniband => return lacks(&plan.service),
            Service::Xrc => return lacks(&plan.service),
            _ => {}
        }
        if plan.verb.is_atomic() && !bounds.atomics {
            return lacks(&"atomics");
        }
        match self.immediate {
            Some(false) => Ok(plan.without_immediate()),
            Some(true) if plan.verb == Verb::WriteImm && !bounds.infiniband => lacks(&"writes with immediate data"),
            None if !bounds.infiniband => Ok(plan.without_immediate()),
            _ => Ok(plan),
        }
    }

    /// The shape with a depth that both ends have agreed on.
    ///
    /// # Errors
    /// The buffers of that depth would take more memory than a test may use.
    pub fn agreed(&self, depth: u32, plan: Plan) -> Result<Shape> {
        if depth == 0 || depth > MAX_DEPTH {
            return Err(Error::protocol(format!("the peer wants a depth of {depth}")));
        }
        let shape = self.shape(depth, plan);
        let buffers = if self.verify { u64::from(shape.sends() + shape.receives() * shape.qps) } else { 2 };
        let memory = buffers * self.msg_size;
        if memory > MAX_MEMORY * 2 {
            return Err(Error::limit(format!(
                "{} of buffers for --verify: the limit is {}; give --msg-size (-m) a smaller size",
                Size(memory),
                Size(MAX_MEMORY * 2)
            )));
        }
        Ok(shape)
    }

    fn shape(&self, depth: u32, plan: Plan) -> Shape {
        let batch = (depth / 4).max(1);
        let most = (depth / 2 / self.qps).max(1);
        let signal_every = self.tuning.signal_every.unwrap_or(batch / self.qps);
        Shape {
            tuning: self.tuning,
            plan,
            msg_size: u32::try_from(self.msg_size).unwrap_or(u32::MAX),
            qps: self.qps,
            depth,
            batch,
            // What all queue pairs together may leave unsaid stays below the depth.
            signal_every: if self.verify { 1 } else { signal_every.clamp(1, most) },
            credited: plan.verb.takes_receives() && (!self.flood || plan.service.is_reliable()),
            limit: self.limit,
            verify: self.verify,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    fn spec(line: &str) -> Result<Spec> {
        let args = std::iter::once("rperf").chain(line.split_whitespace());
        Spec::new(Test::RcBw, &Options::try_parse_from(args).unwrap())
    }

    fn bounds() -> Bounds {
        Bounds {
            device: "dev0".into(),
            max_msg: 8 << 20,
            max_qp_wr: 1024,
            max_cqe: 2048,
            mtu: 4096,
            infiniband: true,
            atomics: true,
        }
    }

    fn of(test: Test) -> Spec {
        Spec::new(test, &Options::try_parse_from(["rperf"]).unwrap()).unwrap()
    }

    #[test]
    fn what_a_device_lacks_is_said_in_one_line() {
        let iwarp = Bounds { infiniband: false, atomics: false, ..bounds() };
        for (test, what) in [
            (Test::UcBw, "needs UC (unreliable connections), which dev0 lacks"),
            (Test::UdLat, "needs UD"),
            (Test::RcFetchAddMr, "needs atomics"),
            (Test::XrcLat, "needs XRC"),
        ] {
            let text = of(test).fit(&iwarp).unwrap_err().to_string();
            assert!(text.starts_with(what) && !text.contains('\n'), "{text}");
        }
        let shape = of(Test::RcRdmaWriteLat).fit(&iwarp).unwrap();
        assert_eq!((shape.plan.verb, shape.plan.pattern), (Verb::Write, Pattern::Polled));
        let asked = Spec { immediate: Some(true), ..of(Test::RcRdmaWriteBw) };
        assert!(asked.fit(&iwarp).unwrap_err().to_string().contains("writes with immediate data, which dev0 lacks"));
    }

    #[test]
    fn a_datagram_is_at_most_the_mtu() {
        let text = Spec { msg_size: 4097, ..of(Test::UdBw) }.fit(&bounds()).unwrap_err().to_string();
        assert!(text.contains("4 KiB in one datagram"), "{text}");
    }

    #[test]
    fn defaults_are_qperfs() {
        let s = spec("").unwrap();
        assert_eq!((s.msg_size, s.limit), (65536, Limit::Time(Duration::from_secs(2))));
        assert_eq!(s.client.timeout, Duration::from_secs(5));
    }

    #[test]
    fn absurd_numbers_are_refused_with_the_limit_and_the_option() {
        for (line, says) in [
            ("--msg-size 8G", &["8 GiB", "1 GiB", "-m"][..]),
            ("--msg-size 0", &["at least 1 byte", "-m"]),
            ("--messages 0", &["-n"]),
            ("--time 0", &["-t"]),
            ("--time 10000h", &["-t", "7 d"]),
            ("--depth 0", &["--depth", "16384"]),
            ("--depth 1000000", &["--depth", "16384"]),
            ("--mtu 1000", &["-mt", "4096"]),
            ("--timeout 0", &["-to"]),
        ] {
            let text = spec(line).unwrap_err().to_string();
            assert!(says.iter().all(|s| text.contains(s)), "{line}: {text}");
        }
    }

    #[test]
    fn a_message_larger_than_the_device_carries_is_refused_by_the_devices_name() {
        let text = spec("--msg-size 9M").unwrap().fit(&bounds()).unwrap_err().to_string();
        assert!(text.contains("dev0") && text.contains("8 MiB"), "{text}");
    }

    #[test]
    fn remote_options_win_for_the_server() {
        let s = spec("--id a --remote-id b --wait poll --local-wait events --timeout 3 --remote-timeout 9").unwrap();
        assert_eq!(s.client.id.unwrap().name, "a");
        assert_eq!(s.server.id.unwrap().name, "b");
        assert_eq!((s.client.wait, s.server.wait), (Wait::Events, Wait::Poll));
        assert_eq!((s.client.timeout.as_secs(), s.server.timeout.as_secs()), (3, 9));
    }

    proptest::proptest! {
        #[test]
        fn every_shape_fits_its_device(depth in 1..=MAX_DEPTH, size in 1_u64..8 << 20, verify: bool, room in 16_u32..100_000, n in 1_u64..1000, qps in 1_u32..9) {
            let mut s = spec("").unwrap();
            (s.depth, s.msg_size, s.verify, s.qps) = (depth, size, verify, qps);
            for limit in [s.limit, Limit::Messages(n)] {
                s.limit = limit;
                let shape = s.fit(&Bounds { max_qp_wr: room, max_cqe: room * 2 * qps, ..bounds() }).unwrap();
                proptest::prop_assert!(shape.depth >= 1 && shape.depth <= depth * qps);
                proptest::prop_assert!(shape.sends() <= room && shape.receives() <= room, "{shape:?}");
                proptest::prop_assert!(shape.batch >= 1 && shape.batch <= shape.depth);
                proptest::prop_assert_eq!(s.agreed(shape.depth, shape.plan).unwrap(), shape);
            }
        }
    }
}
