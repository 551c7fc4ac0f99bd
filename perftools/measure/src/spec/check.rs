//! Checks a specification against the limits of this program: rule after rule.

use std::time::Duration;

use base::error::{Error, Result};
use base::units::{Size, show_time};

use super::config::Spec;
use super::limits::{
    MAX_DEPTH, MAX_QPS, MAX_RECEIVERS, MAX_SOCKET_BUFFER, MAX_THREADS, MAX_TIME, MAX_WARM_UP,
    UNLIMITED,
};
use super::modes::Cm;
use super::payload_file::MAX_PAYLOAD_FILE;
use super::plan::{MAX_MESSAGE, Pattern, Plan};
use super::side::Limit;
use super::socket_kind::SocketKind;
use super::test::Test;
use super::tuning::{MAX_POST_LIST, Pages};

const MIN_TIMEOUT: Duration = Duration::from_millis(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

impl Spec {
    /// Checks every value against the limits of this program. The server calls it for each
    /// specification that it receives.
    ///
    /// # Errors
    /// A limit error for the first rule that the specification breaks.
    pub fn check(&self) -> Result<()> {
        if !self.test.moves_data() {
            return Ok(());
        }
        self.check_payload()?;
        self.check_sockets()?;
        self.check_queues()?;
        self.check_duration()?;
        self.check_multicast()?;
        self.check_tuning()?;
        self.check_connection()
    }

    /// Returns `true` if packets carry attributes that rdma_cm does not let the program set:
    /// service level, flow label, partition key, static rate or source path bits.
    pub(crate) fn sets_packet_attributes(&self) -> bool {
        self.tuning.sets_packet_attributes()
            || self.client.path.sets_packet_attributes()
            || self.server.path.sets_packet_attributes()
    }

    /// Returns `true` if at least one end uses memory of a GPU.
    pub fn uses_gpu(&self) -> bool {
        self.client.gpu.is_some() || self.server.gpu.is_some()
    }

    /// Returns `true` if this is a test over an RDMA device that meets `condition`.
    pub(super) fn is_rdma(&self, condition: impl FnOnce(Plan) -> bool) -> bool {
        self.test.plan().is_some_and(condition)
    }

    /// Returns the maximum number of targets of each DC initiator.
    fn max_dc_targets(&self) -> u32 {
        let initiators = self.threads.saturating_mul(self.qps);
        (MAX_QPS / initiators.max(1)).max(1)
    }

    /// Checks the message size, the bytes of the messages, and the use of memory of a GPU.
    fn check_payload(&self) -> Result<()> {
        if let Some(file) = self.payload.as_ref().filter(|file| !file.is_valid()) {
            let length = file.length;
            return refuse(
                format!("payload file of {length} bytes: expected 1 to {MAX_PAYLOAD_FILE}"),
                "use --payload-file with a file of such a length, whose bytes are repeated",
            );
        }
        if self.msg_size == 0 {
            return refuse(
                "message size of 0 bytes: the minimum is 1 byte",
                "set --msg-size (-m) to a size such as 64K",
            );
        }
        let size = Size(self.msg_size);
        let socket = self.test.socket();
        let maxima = [
            Some((MAX_MESSAGE, "the maximum".to_owned())),
            socket.map(|kind| {
                (
                    kind.max_message(),
                    format!("the maximum of {}", kind.name()),
                )
            }),
        ];
        for (max, what) in maxima.into_iter().flatten() {
            if self.msg_size > max {
                let cause = format!("message size of {size}: {what} is {}", Size(max));
                return refuse(cause, "set --msg-size (-m) lower");
            }
        }
        if self.is_rdma(|plan| plan.verb.is_atomic() && self.msg_size != 8) {
            return refuse(
                format!("message size of {size}: an atomic operation has 8 bytes"),
                "remove --msg-size (-m) for tests of atomic operations",
            );
        }
        if !self.uses_gpu() {
            return Ok(());
        }
        if self.verify || self.tuning.access_received {
            return refuse(
                "--verify or --access-received (-ar) with --gpu: the CPU would read each received byte, and cannot read memory of a GPU",
                "remove --gpu, or remove --verify and --access-received (-ar) and choose a test that does not verify its data",
            );
        }
        if self.is_rdma(|plan| plan.pattern == Pattern::Polled) {
            let name = self.test.name();
            return refuse(
                format!(
                    "{name} with --gpu: the CPU polls the memory for each message, and cannot read memory of a GPU"
                ),
                "remove --gpu, or run rc_rdma_write_lat, which waits for completions",
            );
        }
        if self.tuning.inline.is_some_and(|size| size > 0) {
            return refuse(
                "--inline with --gpu: the CPU copies inline data, and cannot read memory of a GPU",
                "remove --inline, or set it to 0",
            );
        }
        let on_both_ends = self.client.gpu.is_some() && self.server.gpu.is_some();
        if on_both_ends && (self.tuning.pages != Pages::Normal || self.tuning.on_demand) {
            return refuse(
                "--huge-pages or --on-demand with --gpu at both ends: no buffer is in host memory",
                "remove --huge-pages and --on-demand, or use memory of a GPU at one end only: --gpu local=GPU",
            );
        }
        Ok(())
    }

    fn check_sockets(&self) -> Result<()> {
        let (name, streams) = (self.test.name(), self.sockets.streams());
        let is_socket = self.test.socket().is_some();
        if is_socket && (self.qps > 1 || self.threads > 1) {
            return refuse(
                format!("{name}: tests over sockets have no queue pairs and no threads"),
                "remove --qps and --threads; for several streams, use --parallel",
            );
        }
        if streams > 1 && !is_socket {
            return refuse(
                format!("{name}: --parallel and --bidir are for tests over sockets"),
                "use --qps or --threads for several queue pairs, and a test such as rc_bi_bw for both directions",
            );
        }
        let has_streams = streams > 1 || self.tuning.rate_limit.is_some();
        if has_streams && is_socket && self.test.is_latency() {
            return refuse(
                format!("{name}: a latency test has one message in flight"),
                "remove --parallel, --bidir and --rate-limit",
            );
        }
        in_range("number of streams", streams, MAX_THREADS)
            .map_err(|e| e.with_help("set --parallel within this range; --bidir doubles it"))?;
        let port = self.sockets.port;
        if port > 0 && u32::from(port) + streams > 65_536 {
            return refuse(
                format!("{streams} streams from port {port} on: the last port is 65535"),
                "set --ip-port (-ip) lower",
            );
        }
        if is_socket && matches!(self.limit, Limit::Messages(n) if n < streams.into()) {
            return refuse(
                format!(
                    "fewer messages than streams: each of the {streams} streams needs at least one"
                ),
                "set --messages (-n) to at least the number of streams",
            );
        }
        if self.sockets.bidirectional && self.flip {
            return refuse(
                "--bidir with --flip (-f): both directions are used anyway",
                "remove --flip (-f)",
            );
        }
        let buffers = self.sockets.client_buffers.max(self.sockets.server_buffers);
        if is_socket && buffers > MAX_SOCKET_BUFFER {
            let (buffers, max) = (Size(buffers.into()), Size(MAX_SOCKET_BUFFER.into()));
            return refuse(
                format!("socket buffers of {buffers}: the maximum is {max}"),
                "set --sock-buf-size (-sb) lower",
            );
        }
        // The first 8 bytes of a verified datagram are its sequence number.
        let is_datagram = self.test.socket().is_some_and(SocketKind::is_datagram);
        if self.verify && is_datagram && !self.test.is_latency() && self.msg_size < 8 {
            let size = Size(self.msg_size);
            return refuse(
                format!(
                    "--verify with datagrams of {size}: each one carries an 8-byte sequence number"
                ),
                "set --msg-size (-m) to at least 8",
            );
        }
        Ok(())
    }

    /// Checks the queue depth, the queue pairs and the threads.
    fn check_queues(&self) -> Result<()> {
        let (name, threads, qps) = (self.test.name(), self.threads, self.qps);
        in_range("queue depth", self.depth, MAX_DEPTH)
            .map_err(|e| e.with_help("set --depth within this range"))?;
        in_range("number of queue pairs", qps, MAX_QPS)
            .map_err(|e| e.with_help("set --qps within this range"))?;
        in_range("number of threads", threads, MAX_THREADS)
            .map_err(|e| e.with_help("set --threads within this range"))?;
        if threads * qps > MAX_QPS {
            return refuse(
                format!(
                    "{threads} threads with {qps} queue pairs each: the maximum is {MAX_QPS} queue pairs in total"
                ),
                "set --threads or --qps lower",
            );
        }
        let is_latency = self.is_rdma(Plan::is_latency);
        if threads > 1 && is_latency {
            let cause = format!("{threads} threads: {name} uses one thread");
            return refuse(cause, "remove --threads");
        }
        if qps > 1 && is_latency {
            let cause = format!("{qps} queue pairs: {name} uses one queue pair");
            return refuse(cause, "remove --qps");
        }
        Ok(())
    }

    fn check_duration(&self) -> Result<()> {
        let threads = self.threads;
        match self.limit {
            Limit::Messages(0) => refuse(
                "test of 0 messages: the minimum is 1",
                "set --messages (-n) to at least 1",
            ),
            Limit::Messages(n) if n < threads.into() => refuse(
                format!(
                    "fewer messages than threads: each of the {threads} threads needs at least one"
                ),
                "set --messages (-n) to at least the number of threads",
            ),
            Limit::Time(time) if time.is_zero() => refuse(
                "test of 0 s: it would measure nothing",
                "set --time (-t) to a time such as 2",
            ),
            Limit::Time(time) if time > MAX_TIME && time != UNLIMITED => refuse(
                format!("test of {}: the maximum is 7 d", show_time(time)),
                "set --time (-t) lower, or to unlimited",
            ),
            _ => Ok(()),
        }?;
        let warm_up = self.tuning.warm_up;
        if warm_up > MAX_WARM_UP {
            let cause = format!("warm-up of {}: the maximum is 1 h", show_time(warm_up));
            return refuse(cause, "set --warm-up lower");
        }
        if !warm_up.is_zero() && matches!(self.limit, Limit::Messages(_)) {
            return refuse(
                "warm-up in a test with a number of messages: only tests with a duration have one",
                "set --time (-t) instead of --messages (-n), or remove --warm-up",
            );
        }
        let timeouts = [
            ("client", self.client.timeout),
            ("server", self.server.timeout),
        ];
        for (end, timeout) in timeouts {
            if !(MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) {
                let timeout = show_time(timeout);
                return refuse(
                    format!("timeout of the {end} of {timeout}: expected 10 ms to 1 d"),
                    "set --timeout (-to) within this range",
                );
            }
        }
        Ok(())
    }

    fn check_multicast(&self) -> Result<()> {
        let Some(multicast) = self.multicast else {
            return Ok(());
        };
        let is_plain = self.test == Test::UdBw && !self.flip && self.threads == 1 && self.qps == 1;
        if !is_plain || self.use_cm == Cm::On || self.sets_packet_attributes() {
            return refuse(
                "--multicast (-g): only ud_bw supports it, with one queue pair and default packet attributes",
                "remove other tests, --flip, --threads, --qps, --use-cm and options such as --service-level",
            );
        }
        in_range(
            "number of multicast receivers",
            multicast.receivers,
            MAX_RECEIVERS,
        )
        .map_err(|e| e.with_help("set --multicast (-g) within this range"))?;
        match multicast.group {
            Some(group) if !group.is_multicast() => refuse(
                format!("multicast group {group}: not a multicast address"),
                "set --multicast-group to an address such as 239.255.1.2, or remove it",
            ),
            _ => Ok(()),
        }
    }

    fn check_tuning(&self) -> Result<()> {
        let tuning = &self.tuning;
        in_range("messages per doorbell", tuning.post_list, MAX_POST_LIST)
            .map_err(|e| e.with_help("set --post-list within this range"))?;
        in_range(
            "receive requests per doorbell",
            tuning.recv_list.unwrap_or(1),
            MAX_POST_LIST,
        )
        .map_err(|e| e.with_help("set --recv-list within this range"))?;
        in_range(
            "number of DC targets",
            self.dc_targets(),
            self.max_dc_targets(),
        )
        .map_err(|e| e.with_help("set --dc-targets within this range"))?;
        if tuning.rate_limit == Some(0) {
            return refuse(
                "rate limit of 0 bytes per second: the minimum is 1 byte per second",
                "set --rate-limit higher",
            );
        }
        if tuning.burst.is_some() && tuning.rate_limit.is_none() {
            return refuse(
                "--burst without a rate limit: nothing spreads the messages",
                "add --rate-limit, or remove --burst",
            );
        }
        in_range("messages per burst", tuning.burst.unwrap_or(1), MAX_DEPTH)
            .map_err(|e| e.with_help("set --burst within this range"))?;
        let flow_label = tuning.flow_label;
        if flow_label > 0xf_ffff {
            let cause = format!("flow label {flow_label}: the maximum is 1048575");
            return refuse(cause, "set --flow-label lower");
        }
        if tuning.qp_timeout.is_some_and(|n| n > 31) || tuning.retry_count.is_some_and(|n| n > 7) {
            return refuse(
                "timeout or retries of the queue pair: the maxima are 31 and 7",
                "set --qp-timeout and --retry-count lower",
            );
        }
        if tuning.signal_every == Some(0) {
            return refuse(
                "completion for every 0th send: the minimum is 1",
                "set --cq-moderation to at least 1",
            );
        }
        if tuning.rd_atomic == Some(0) {
            return refuse(
                "0 RDMA reads and atomics in flight: the minimum is 1",
                "set --rd-atomic (-nr) to at least 1",
            );
        }
        Ok(())
    }

    /// Checks the direction and the connection.
    fn check_connection(&self) -> Result<()> {
        let name = self.test.name();
        if self.flip && !self.test.is_one_way() {
            return refuse(
                format!("--flip (-f) with {name}: only a test with one sender can be reversed"),
                "remove --flip (-f)",
            );
        }
        if let (Cm::On, Some(plan)) = (self.use_cm, self.test.plan()) {
            let service = plan.service;
            if !service.uses_cm() {
                return refuse(
                    format!(
                        "{name} with rdma_cm: rperf uses rdma_cm for RC and UD only, not for {service}"
                    ),
                    "remove --use-cm (-cm1)",
                );
            }
            if self.sets_packet_attributes() {
                return refuse(
                    "--service-level (-sl), --flow-label, --pkey-index and --static-rate (-sr): not supported with rdma_cm",
                    "remove --use-cm (-cm1)",
                );
            }
        }
        match self.mtu {
            Some(mtu) if !MTUS.contains(&mtu) => refuse(
                format!("MTU of {mtu} bytes: expected 256, 512, 1024, 2048 or 4096"),
                "set --mtu (-mt) to one of these sizes",
            ),
            _ => Ok(()),
        }
    }
}

fn refuse(cause: impl Into<String>, help: &str) -> Result<()> {
    Err(Error::limit(cause).with_help(help))
}

fn in_range(what: &str, value: u32, max: u32) -> Result<()> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    Err(Error::limit(format!(
        "{what} of {value}: expected 1 to {max}"
    )))
}
