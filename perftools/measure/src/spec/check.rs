//! Checks a specification against the limits of this program: a table of rules.

use std::time::Duration;

use base::error::{Error, Result};
use base::units::{Size, show_time};

use super::config::Spec;
use super::limits::{
    MAX_DEPTH, MAX_QPS, MAX_RECEIVERS, MAX_SOCKET_BUFFER, MAX_THREADS, MAX_TIME, MAX_WARM_UP,
    UNLIMITED,
};
use super::modes::Cm;
use super::payload_file;
use super::plan::{MAX_MESSAGE, Pattern, Plan, Service};
use super::side::Limit;
use super::socket_kind::SocketKind;
use super::test::Test;
use super::tuning::{MAX_POST_LIST, Pages};

const MIN_TIMEOUT: Duration = Duration::from_millis(10);
const MAX_TIMEOUT: Duration = Duration::from_secs(86_400);
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// A condition that no specification may meet, and the error that reports it.
pub(super) struct SpecRule {
    /// Returns `true` if the specification breaks the rule.
    pub(super) is_broken: fn(&Spec) -> bool,
    /// Describes what is wrong, with the limit.
    pub(super) cause: fn(&Spec) -> String,
    /// The remedy.
    pub(super) help: &'static str,
}

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
        let mut rules = payload_file::RULES.iter().chain(RULES);
        match rules.find(|rule| (rule.is_broken)(self)) {
            Some(rule) => Err(Error::limit((rule.cause)(self)).with_help(rule.help)),
            None => Ok(()),
        }
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

    /// Returns `true` if this is a test over sockets that meets `condition`.
    fn is_socket(&self, condition: impl FnOnce(SocketKind) -> bool) -> bool {
        self.test.socket().is_some_and(condition)
    }

    /// Returns the maximum number of targets of each DC initiator.
    fn max_dc_targets(&self) -> u32 {
        let initiators = self.threads.saturating_mul(self.qps);
        (MAX_QPS / initiators.max(1)).max(1)
    }

    fn multicast_group_is_unicast(&self) -> bool {
        self.multicast
            .and_then(|multicast| multicast.group)
            .is_some_and(|group| !group.is_multicast())
    }
}

/// The rules, in the order in which they are checked.
const RULES: &[SpecRule] = &[
    // Message size.
    SpecRule {
        is_broken: |spec| spec.msg_size == 0,
        cause: |_| "message size of 0 bytes: the minimum is 1 byte".to_owned(),
        help: "set --msg-size (-m) to a size such as 64K",
    },
    SpecRule {
        is_broken: |spec| spec.msg_size > MAX_MESSAGE,
        cause: |spec| message_too_large(spec, "the maximum", MAX_MESSAGE),
        help: "set --msg-size (-m) lower",
    },
    SpecRule {
        is_broken: |spec| spec.is_socket(|kind| spec.msg_size > kind.max_message()),
        cause: |spec| {
            let kind = spec.test.socket().unwrap_or(SocketKind::Tcp);
            let what = format!("the maximum of {}", kind.name());
            message_too_large(spec, &what, kind.max_message())
        },
        help: "set --msg-size (-m) lower",
    },
    SpecRule {
        is_broken: |spec| spec.is_rdma(|plan| plan.verb.is_atomic() && spec.msg_size != 8),
        cause: |spec| {
            let size = Size(spec.msg_size);
            format!("message size of {size}: an atomic operation has 8 bytes")
        },
        help: "remove --msg-size (-m) for tests of atomic operations",
    },
    // Memory of a GPU.
    SpecRule {
        is_broken: |spec| spec.uses_gpu() && (spec.verify || spec.tuning.access_received),
        cause: |_| {
            "--verify or --access-received (-ar) with --gpu: the CPU would read each received byte, and cannot read memory of a GPU".to_owned()
        },
        help: "remove --gpu, or remove --verify and --access-received (-ar) and choose a test that does not verify its data",
    },
    SpecRule {
        is_broken: |spec| spec.uses_gpu() && spec.is_rdma(|plan| plan.pattern == Pattern::Polled),
        cause: |spec| {
            let name = spec.test.name();
            format!(
                "{name} with --gpu: the CPU polls the memory for each message, and cannot read memory of a GPU"
            )
        },
        help: "remove --gpu, or run rc_rdma_write_lat, which waits for completions",
    },
    SpecRule {
        is_broken: |spec| spec.uses_gpu() && spec.tuning.inline.is_some_and(|size| size > 0),
        cause: |_| {
            "--inline with --gpu: the CPU copies inline data, and cannot read memory of a GPU"
                .to_owned()
        },
        help: "remove --inline, or set it to 0",
    },
    SpecRule {
        is_broken: |spec| {
            let on_both_ends = spec.client.gpu.is_some() && spec.server.gpu.is_some();
            let tuning = &spec.tuning;
            let sets_host_memory = tuning.pages != Pages::Normal || tuning.on_demand;
            on_both_ends && sets_host_memory
        },
        cause: |_| {
            "--huge-pages or --on-demand with --gpu at both ends: no buffer is in host memory"
                .to_owned()
        },
        help: "remove --huge-pages and --on-demand, or use memory of a GPU at one end only: --gpu local=GPU",
    },
    // Tests over sockets.
    SpecRule {
        is_broken: |spec| spec.is_socket(|_| spec.qps > 1 || spec.threads > 1),
        cause: |spec| {
            let name = spec.test.name();
            format!("{name}: tests over sockets have no queue pairs and no threads")
        },
        help: "remove --qps and --threads; for several streams, use --parallel",
    },
    SpecRule {
        is_broken: |spec| spec.sockets.streams() > 1 && spec.test.socket().is_none(),
        cause: |spec| {
            format!(
                "{}: --parallel and --bidir are for tests over sockets",
                spec.test.name()
            )
        },
        help: "use --qps or --threads for several queue pairs, and a test such as rc_bi_bw for both directions",
    },
    SpecRule {
        is_broken: |spec| {
            let has_streams = spec.sockets.streams() > 1 || spec.tuning.rate_limit.is_some();
            has_streams && spec.is_socket(|_| spec.test.is_latency())
        },
        cause: |spec| {
            format!(
                "{}: a latency test has one message in flight",
                spec.test.name()
            )
        },
        help: "remove --parallel, --bidir and --rate-limit",
    },
    SpecRule {
        is_broken: |spec| !(1..=MAX_THREADS).contains(&spec.sockets.streams()),
        cause: |spec| out_of_range("number of streams", spec.sockets.streams(), MAX_THREADS),
        help: "set --parallel within this range; --bidir doubles it",
    },
    SpecRule {
        is_broken: |spec| {
            let last = u32::from(spec.sockets.port) + spec.sockets.streams();
            spec.sockets.port > 0 && last > 65_536
        },
        cause: |spec| {
            format!(
                "{} streams from port {} on: the last port is 65535",
                spec.sockets.streams(),
                spec.sockets.port
            )
        },
        help: "set --ip-port (-ip) lower",
    },
    SpecRule {
        is_broken: |spec| {
            let streams = u64::from(spec.sockets.streams());
            matches!(spec.limit, Limit::Messages(n) if spec.is_socket(|_| n < streams))
        },
        cause: |spec| {
            let streams = spec.sockets.streams();
            format!("fewer messages than streams: each of the {streams} streams needs at least one")
        },
        help: "set --messages (-n) to at least the number of streams",
    },
    SpecRule {
        is_broken: |spec| spec.sockets.bidirectional && spec.flip,
        cause: |_| "--bidir with --flip (-f): both directions are used anyway".to_owned(),
        help: "remove --flip (-f)",
    },
    SpecRule {
        is_broken: |spec| {
            let sockets = spec.sockets;
            let larger = sockets.client_buffers.max(sockets.server_buffers);
            spec.is_socket(|_| larger > MAX_SOCKET_BUFFER)
        },
        cause: |spec| {
            let sockets = spec.sockets;
            let larger = sockets.client_buffers.max(sockets.server_buffers);
            format!(
                "socket buffers of {}: the maximum is {}",
                Size(larger.into()),
                Size(MAX_SOCKET_BUFFER.into())
            )
        },
        help: "set --sock-buf-size (-sb) lower",
    },
    SpecRule {
        // The first 8 bytes of a verified datagram are its sequence number.
        is_broken: |spec| {
            let needs_number = spec.is_socket(SocketKind::is_datagram) && !spec.test.is_latency();
            spec.verify && needs_number && spec.msg_size < 8
        },
        cause: |spec| {
            let size = Size(spec.msg_size);
            format!("--verify with datagrams of {size}: each one carries an 8-byte sequence number")
        },
        help: "set --msg-size (-m) to at least 8",
    },
    // Queue depth, queue pairs and threads.
    SpecRule {
        is_broken: |spec| !(1..=MAX_DEPTH).contains(&spec.depth),
        cause: |spec| out_of_range("queue depth", spec.depth, MAX_DEPTH),
        help: "set --depth within this range",
    },
    SpecRule {
        is_broken: |spec| !(1..=MAX_QPS).contains(&spec.qps),
        cause: |spec| out_of_range("number of queue pairs", spec.qps, MAX_QPS),
        help: "set --qps within this range",
    },
    SpecRule {
        is_broken: |spec| !(1..=MAX_THREADS).contains(&spec.threads),
        cause: |spec| out_of_range("number of threads", spec.threads, MAX_THREADS),
        help: "set --threads within this range",
    },
    SpecRule {
        is_broken: |spec| spec.threads * spec.qps > MAX_QPS,
        cause: |spec| {
            let (threads, qps) = (spec.threads, spec.qps);
            format!(
                "{threads} threads with {qps} queue pairs each: the maximum is {MAX_QPS} queue pairs in total"
            )
        },
        help: "set --threads or --qps lower",
    },
    SpecRule {
        is_broken: |spec| spec.threads > 1 && spec.is_rdma(Plan::is_latency),
        cause: |spec| {
            format!(
                "{} threads: {} uses one thread",
                spec.threads,
                spec.test.name()
            )
        },
        help: "remove --threads",
    },
    SpecRule {
        is_broken: |spec| spec.qps > 1 && spec.is_rdma(Plan::is_latency),
        cause: |spec| {
            format!(
                "{} queue pairs: {} uses one queue pair",
                spec.qps,
                spec.test.name()
            )
        },
        help: "remove --qps",
    },
    // Duration.
    SpecRule {
        is_broken: |spec| spec.limit == Limit::Messages(0),
        cause: |_| "test of 0 messages: the minimum is 1".to_owned(),
        help: "set --messages (-n) to at least 1",
    },
    SpecRule {
        is_broken: |spec| matches!(spec.limit, Limit::Messages(n) if n < spec.threads.into()),
        cause: |spec| {
            let threads = spec.threads;
            format!("fewer messages than threads: each of the {threads} threads needs at least one")
        },
        help: "set --messages (-n) to at least the number of threads",
    },
    SpecRule {
        is_broken: |spec| matches!(spec.limit, Limit::Time(time) if time.is_zero()),
        cause: |_| "test of 0 s: it would measure nothing".to_owned(),
        help: "set --time (-t) to a time such as 2",
    },
    SpecRule {
        is_broken: |spec| matches!(spec.limit, Limit::Time(time) if time > MAX_TIME && time != UNLIMITED),
        cause: |spec| match spec.limit {
            Limit::Time(time) => format!("test of {}: the maximum is 7 d", show_time(time)),
            Limit::Messages(_) => "test is too long: the maximum is 7 d".to_owned(),
        },
        help: "set --time (-t) lower, or to unlimited",
    },
    SpecRule {
        is_broken: |spec| spec.tuning.warm_up > MAX_WARM_UP,
        cause: |spec| {
            let warm_up = show_time(spec.tuning.warm_up);
            format!("warm-up of {warm_up}: the maximum is 1 h")
        },
        help: "set --warm-up lower",
    },
    SpecRule {
        is_broken: |spec| {
            !spec.tuning.warm_up.is_zero() && matches!(spec.limit, Limit::Messages(_))
        },
        cause: |_| {
            "warm-up in a test with a number of messages: only tests with a duration have one"
                .to_owned()
        },
        help: "set --time (-t) instead of --messages (-n), or remove --warm-up",
    },
    SpecRule {
        is_broken: |spec| !is_valid_timeout(spec.client.timeout),
        cause: |spec| timeout_out_of_range("client", spec.client.timeout),
        help: "set --timeout (-to) within this range",
    },
    SpecRule {
        is_broken: |spec| !is_valid_timeout(spec.server.timeout),
        cause: |spec| timeout_out_of_range("server", spec.server.timeout),
        help: "set --timeout (-to) within this range",
    },
    // Multicast.
    SpecRule {
        is_broken: |spec| {
            let is_plain =
                spec.test == Test::UdBw && !spec.flip && spec.threads == 1 && spec.qps == 1;
            let is_supported = is_plain && spec.use_cm != Cm::On && !spec.sets_packet_attributes();
            spec.multicast.is_some() && !is_supported
        },
        cause: |_| {
            "--multicast (-g): only ud_bw supports it, with one queue pair and default packet attributes".to_owned()
        },
        help: "remove other tests, --flip, --threads, --qps, --use-cm and options such as --service-level",
    },
    SpecRule {
        is_broken: |spec| {
            spec.multicast
                .is_some_and(|multicast| !(1..=MAX_RECEIVERS).contains(&multicast.receivers))
        },
        cause: |spec| {
            let receivers = spec.multicast.map_or(0, |multicast| multicast.receivers);
            out_of_range("number of multicast receivers", receivers, MAX_RECEIVERS)
        },
        help: "set --multicast (-g) within this range",
    },
    SpecRule {
        is_broken: Spec::multicast_group_is_unicast,
        cause: |spec| match spec.multicast.and_then(|multicast| multicast.group) {
            Some(group) => format!("multicast group {group}: not a multicast address"),
            None => "multicast group: not a multicast address".to_owned(),
        },
        help: "set --multicast-group to an address such as 239.255.1.2, or remove it",
    },
    // Tuning.
    SpecRule {
        is_broken: |spec| !(1..=MAX_POST_LIST).contains(&spec.tuning.post_list),
        cause: |spec| {
            out_of_range(
                "messages per doorbell",
                spec.tuning.post_list,
                MAX_POST_LIST,
            )
        },
        help: "set --post-list within this range",
    },
    SpecRule {
        is_broken: |spec| {
            let batch = spec.tuning.recv_list;
            batch.is_some_and(|n| !(1..=MAX_POST_LIST).contains(&n))
        },
        cause: |spec| {
            let batch = spec.tuning.recv_list.unwrap_or(0);
            out_of_range("receive requests per doorbell", batch, MAX_POST_LIST)
        },
        help: "set --recv-list within this range",
    },
    SpecRule {
        is_broken: |spec| !(1..=spec.max_dc_targets()).contains(&spec.dc_targets()),
        cause: |spec| {
            out_of_range(
                "number of DC targets",
                spec.dc_targets(),
                spec.max_dc_targets(),
            )
        },
        help: "set --dc-targets within this range",
    },
    SpecRule {
        is_broken: |spec| spec.tuning.rate_limit == Some(0),
        cause: |_| "rate limit of 0 bytes per second: the minimum is 1 byte per second".to_owned(),
        help: "set --rate-limit higher",
    },
    SpecRule {
        is_broken: |spec| spec.tuning.burst.is_some() && spec.tuning.rate_limit.is_none(),
        cause: |_| "--burst without a rate limit: nothing spreads the messages".to_owned(),
        help: "add --rate-limit, or remove --burst",
    },
    SpecRule {
        is_broken: |spec| {
            spec.tuning
                .burst
                .is_some_and(|n| !(1..=MAX_DEPTH).contains(&n))
        },
        cause: |spec| {
            out_of_range(
                "messages per burst",
                spec.tuning.burst.unwrap_or(0),
                MAX_DEPTH,
            )
        },
        help: "set --burst within this range",
    },
    SpecRule {
        is_broken: |spec| spec.tuning.flow_label > 0xf_ffff,
        cause: |spec| {
            format!(
                "flow label {}: the maximum is 1048575",
                spec.tuning.flow_label
            )
        },
        help: "set --flow-label lower",
    },
    SpecRule {
        is_broken: |spec| {
            spec.tuning.qp_timeout.is_some_and(|n| n > 31)
                || spec.tuning.retry_count.is_some_and(|n| n > 7)
        },
        cause: |_| "timeout or retries of the queue pair: the maxima are 31 and 7".to_owned(),
        help: "set --qp-timeout and --retry-count lower",
    },
    SpecRule {
        is_broken: |spec| spec.tuning.signal_every == Some(0),
        cause: |_| "completion for every 0th send: the minimum is 1".to_owned(),
        help: "set --cq-moderation to at least 1",
    },
    SpecRule {
        is_broken: |spec| spec.tuning.rd_atomic == Some(0),
        cause: |_| "0 RDMA reads and atomics in flight: the minimum is 1".to_owned(),
        help: "set --rd-atomic (-nr) to at least 1",
    },
    // Direction and connection.
    SpecRule {
        is_broken: |spec| spec.flip && !spec.test.is_one_way(),
        cause: |spec| {
            let name = spec.test.name();
            format!("--flip (-f) with {name}: only a test with one sender can be reversed")
        },
        help: "remove --flip (-f)",
    },
    SpecRule {
        is_broken: |spec| spec.use_cm == Cm::On && spec.is_rdma(|plan| !plan.service.uses_cm()),
        cause: |spec| {
            let name = spec.test.name();
            let service = spec.test.plan().map_or(Service::Xrc, |plan| plan.service);
            format!("{name} with rdma_cm: rperf uses rdma_cm for RC and UD only, not for {service}")
        },
        help: "remove --use-cm (-cm1)",
    },
    SpecRule {
        is_broken: |spec| {
            spec.use_cm == Cm::On && spec.sets_packet_attributes() && spec.test.plan().is_some()
        },
        cause: |_| {
            "--service-level (-sl), --flow-label, --pkey-index and --static-rate (-sr): not supported with rdma_cm".to_owned()
        },
        help: "remove --use-cm (-cm1)",
    },
    SpecRule {
        is_broken: |spec| spec.mtu.is_some_and(|mtu| !MTUS.contains(&mtu)),
        cause: |spec| {
            let mtu = spec.mtu.unwrap_or(0);
            format!("MTU of {mtu} bytes: expected 256, 512, 1024, 2048 or 4096")
        },
        help: "set --mtu (-mt) to one of these sizes",
    },
];

fn message_too_large(spec: &Spec, what: &str, max: u64) -> String {
    format!(
        "message size of {}: {what} is {}",
        Size(spec.msg_size),
        Size(max)
    )
}

fn out_of_range(what: &str, value: u32, max: u32) -> String {
    format!("{what} of {value}: expected 1 to {max}")
}

fn is_valid_timeout(timeout: Duration) -> bool {
    (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout)
}

fn timeout_out_of_range(end: &str, timeout: Duration) -> String {
    format!(
        "timeout of the {end} of {}: expected 10 ms to 1 d",
        show_time(timeout)
    )
}
