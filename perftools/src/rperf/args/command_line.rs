//! The options that apply to every test, as clap parses them. The options of the data path are in
//! `tuning`, those of servers in `server`.

use std::net::IpAddr;
use std::time::Duration;

use base::device_id::DeviceList;
use base::ports;
use base::units::{Size, parse_time};
use clap::Parser;
use measure::spec::modes::{Cm, Wait};
use measure::spec::{Limit, Multicast};

use super::limits::LimitOptions;
use super::option::OtherCommand::{Mesh, Tune};
use super::option::{Scope, each_end, entry, on, options, set};
use super::per_end::{End, PerEnd, per_end, value};
use super::server::ServerArgs;
use super::sockets::SocketOptions;
use super::sweep::Quantity;
use super::test_class::{
    CM, CONNECTED, DATA, EVENTS, FLOOD, IMMEDIATE, MULTICAST, ONE_WAY, RDMA, RDMA_BANDWIDTH,
};
use super::tuning::TuningOptions;
use super::values::{Detail, duration, interval, on_off};

// Headings of the help text.
const DEVICE: &str = "Device and connection";
const TEST: &str = "Test";
const WAITING: &str = "Waiting";
const OUTPUT: &str = "Output, for the whole run";
const SERVER: &str = "Server";

const STREAMS_OF_SOCKETS: &str = "for several streams of a test over sockets, use --parallel";

options! {
/// Measures RDMA bandwidth and latency between two hosts, or within one.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "rperf",
    version,
    disable_help_flag = true,
    disable_version_flag = true,
    args_override_self = true,
    override_usage = "rperf                              run a server\n       rperf [OPTIONS] HOST TEST…         run tests against the server on HOST\n       rperf [OPTIONS] TEST…              run tests with both ends on this host\n       rperf mesh [OPTIONS] HOST,… TEST…  measure all pairs of hosts\n       rperf monitor [OPTIONS] HOST,…     probe the paths to hosts until interrupted\n       rperf tune [OPTIONS] [HOST]        find the best settings and the bottleneck\n       rperf compare OLD NEW              compare two outputs of --json\n       rperf report FILE… --output PAGE   write an HTML page with plots"
)]
#[allow(clippy::struct_excessive_bools)] // Flags of a command line.
pub struct Options {
    /// RDMA device and port, or several: mlx5_0,mlx5_1; they are measured at the same time, each
    /// with the server's device at the same position of the list [default: the port that has the
    /// address of the control connection, otherwise the first active port]
    #[arg(long, value_name = "DEV[:PORT],…", help_heading = DEVICE)]
    id: Vec<PerEnd<DeviceList>> =
        on(RDMA).names(&["-i"]).synonyms(&["device"]).common().sample(&["dev1"])
            .sets(|o, spec| {
                each_end(&o.id, spec, |side, list| side.id = Some(list.first().clone()));
            }),
    /// Connect with rdma_cm: on, off or auto; auto connects with it only if the device requires it,
    /// as iWARP does [default: auto]
    #[arg(long, value_name = "on|off|auto", help_heading = DEVICE)]
    use_cm: Option<Cm> =
        on(CM).names(&["-cm"]).shorthands(&[("-cm0", "off"), ("-cm1", "on"), ("-cmo", "on")])
            .common().sample(&["off"]).sets(|o, spec| set(&mut spec.use_cm, o.use_cm)),
    /// Path MTU in bytes: 256, 512, 1024, 2048 or 4096 [default: the smaller active MTU of the two
    /// ports]
    #[arg(long, value_name = "SIZE", help_heading = DEVICE)]
    mtu: Option<Size> =
        on(CONNECTED).names(&["-mt", "--mtu-size"]).former("-M").sweep(Quantity::Number)
            .sample(&["1024"])
            .sets(|o, spec| spec.mtu = o.mtu.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX))),

    /// Size of each message in bytes, such as 64K or 1M [default: 1 for latency, 64K for
    /// bandwidth; 32K for UDP and SCTP, 8K for RDS, 2K for UD]
    #[arg(long, value_name = "SIZE", help_heading = TEST)]
    msg_size: Option<Size> =
        on(DATA).names(&["-m"]).synonyms(&["message-size"]).sweep(Quantity::Number).common()
            .varied_by_tune().sample(&["72"])
            .sets(|o, spec| {
                if let Some(size) = o.msg_size {
                    *spec = spec.with_msg_size(size.0);
                }
            }),
    /// Stop after N messages in each direction; overrides --time
    #[arg(long, value_name = "N", help_heading = TEST)]
    messages: Option<u64> =
        on(DATA).names(&["-n", "--no-msgs"]).synonyms(&["iterations"]).sweep(Quantity::Number)
            .common().varied_by_tune().sample(&["1000"])
            .sets(|o, spec| set(&mut spec.limit, o.messages.map(Limit::Messages))),
    /// Stop after this time in seconds, or with a unit, such as 500ms; `unlimited` runs until
    /// interrupted, if the server has --max-time unlimited [default: 2 s]
    #[arg(long, value_name = "TIME", value_parser = duration, help_heading = TEST)]
    time: Option<Duration> =
        on(DATA).names(&["-t"]).sweep(Quantity::Time).common().varied_by_tune().sample(&["7"])
            .sets(|o, spec| {
                let time = o.time.filter(|_| o.messages.is_none());
                set(&mut spec.limit, time.map(Limit::Time));
            }),
    /// Maximum number of messages in flight on each queue pair [default: 1024, at most 16 MiB in
    /// flight, at least 2]
    #[arg(long, value_name = "N", help_heading = TEST)]
    depth: Option<u32> =
        on(RDMA_BANDWIDTH).sweep(Quantity::Number).varied_by_tune().sample(&["3"])
            .sets(|o, spec| set(&mut spec.depth, o.depth)),
    /// Number of queue pairs of each thread [default: 1]
    #[arg(long, value_name = "N", help_heading = TEST)]
    qps: Option<u32> =
        on(RDMA_BANDWIDTH).sweep(Quantity::Number).common().instead(STREAMS_OF_SOCKETS)
            .varied_by_tune().sample(&["3"]).sets(|o, spec| set(&mut spec.qps, o.qps)),
    /// Send to a multicast group (ud_bw only); N queue pairs of the server each receive every
    /// message (-g)
    #[arg(long, value_name = "N", help_heading = TEST)]
    multicast: Option<u32> =
        on(MULTICAST).names(&["-g", "--mcg"]).sample(&["3"])
            .sets(|o, spec| {
                let group = o.multicast_group;
                spec.multicast = o.multicast.map(|receivers| Multicast { receivers, group });
            }),
    /// IP address of the multicast group [default: a random one in 239.255.0.0/16]
    #[arg(long, hide = true, value_name = "ADDRESS", requires = "multicast", help_heading = TEST)]
    multicast_group: Option<IpAddr> =
        on(MULTICAST).sample(&["239.255.1.2", "--multicast=1"]),
    /// Number of threads at each end; each has its own CPU (one of --cpu-affinity, if given) and
    /// its own queue pairs [default: 1]
    #[arg(long, value_name = "N", help_heading = TEST)]
    threads: Option<u32> =
        on(RDMA_BANDWIDTH).sweep(Quantity::Number).common().instead(STREAMS_OF_SOCKETS)
            .not_in(&[Tune]).sample(&["3"]).sets(|o, spec| set(&mut spec.threads, o.threads)),
    /// Use immediate data: on or off [default: on in RDMA writes, so that the receiver counts them,
    /// except on iWARP; off in sends]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    immediate: Option<bool> =
        on(IMMEDIATE).sample(&["off"]).sets(|o, spec| spec.immediate = o.immediate),
    /// Reverse the direction of a one-way test; the server then sends: on or off
    /// [default: off]
    #[arg(long, value_name = "on|off", value_parser = on_off, hide_possible_values = true, help_heading = TEST)]
    flip: Option<bool> =
        on(ONE_WAY).names(&["-f"]).shorthands(&[("-f1", "on"), ("-fo", "on")]).common()
            .not_in(&[Tune]).sample(&["on"]).sets(|o, spec| set(&mut spec.flip, o.flip)),
    /// Send without flow control (UC and UD only); lost messages are counted and shown
    #[arg(long, help_heading = TEST)]
    flood: bool =
        on(FLOOD).sample(&[""]).sets(|o, spec| spec.flood = o.flood),
    /// Send a different payload in every message and check each received byte
    #[arg(long, help_heading = TEST)]
    verify: bool =
        on(DATA).common().sample(&[""]).sets(|o, spec| spec.verify |= o.verify),

    /// Options that tune a test.
    #[command(flatten)]
    tuning: TuningOptions,

    /// Method of waiting for completions: adaptive (poll briefly, then sleep), poll (-cp1) or
    /// events (-cp0, --events) [default: adaptive]
    #[arg(long, value_name = "HOW", help_heading = WAITING)]
    wait: Vec<PerEnd<Wait>> =
        on(DATA).names(&["-cp", "--cq-poll", "--poll"])
            .shorthands(&[
                ("-cp0", "events"), ("-cp1", "poll"), ("-cpo", "poll"), ("--events", "events"),
            ]).former("-P").with_value(("events", Scope::Tests(EVENTS))).varied_by_tune()
            .sample(&["poll"])
            .sets(|o, spec| each_end(&o.wait, spec, |side, wait| side.wait = *wait)),
    /// Fail if the peer does not respond for this time [default: 5 s]
    #[arg(long, value_name = "TIME", value_parser = per_end(parse_time), help_heading = WAITING)]
    timeout: Vec<PerEnd<Duration>> =
        entry(Scope::Run).names(&["-to"]).former("-T").sweep(Quantity::Time)
            .sets(|o, spec| each_end(&o.timeout, spec, |side, time| side.timeout = *time)),
    /// Retry the connection to the server for up to this time [default: 5 s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, help_heading = WAITING)]
    wait_server: Option<Duration> =
        entry(Scope::Run).names(&["-ws"]).former("-W").of_connection(),

    /// Print a line of JSON for each test when it ends, instead of text
    #[arg(long, help_heading = OUTPUT)]
    json: bool =
        entry(Scope::Run).common().varied_by_tune(),
    /// Report each interval of this length, and dips and stalls; at least 10 ms; with --json as a
    /// line of its own
    #[arg(long, value_name = "TIME", value_parser = interval, help_heading = OUTPUT)]
    interval: Option<Duration> =
        on(DATA).common().not_in(&[Tune, Mesh]).sample(&["3"]),
    /// Continue with the next test if one fails; the exit status is still 1
    #[arg(long, help_heading = OUTPUT)]
    keep_going: bool =
        entry(Scope::Run).not_in(&[Tune, Mesh]),
    /// Number of significant digits [default: 3]
    #[arg(long, value_name = "DIGITS", value_parser = clap::value_parser!(u8).range(1..=15), help_heading = OUTPUT)]
    precision: Option<u8> =
        entry(Scope::Run).names(&["-e"]).not_in(&[Mesh]).varied_by_tune(),
    /// Print bandwidth in bits per second instead of bytes
    #[arg(long, help_heading = OUTPUT)]
    bits: bool =
        entry(Scope::Run).names(&["-ub", "--use-bits-per-sec"]).common().not_in(&[Mesh])
            .varied_by_tune(),
    /// Print numbers in base units without separators, for scripts
    #[arg(long, hide = true, help_heading = OUTPUT)]
    unify_units: bool =
        entry(Scope::Run).names(&["-uu"]).former("-u").not_in(&[Mesh]).varied_by_tune(),
    /// Print conf, stat, time and used, or those in WHAT; conf is devices and ports, stat is
    /// statistics, time is CPU use, and used is parameters; more-conf, more-stat, more-time and
    /// more-used print all of them, and more prints everything; a server logs each test (-v, -vc,
    /// -vvs …)
    #[arg(long, value_name = "WHAT", num_args = 0..=1, require_equals = true, default_missing_value = "some", hide_possible_values = true, value_delimiter = ',', action = clap::ArgAction::Append, help_heading = OUTPUT)]
    verbose: Vec<Detail> =
        entry(Scope::Both).common().not_in(&[Tune, Mesh]).names(&["-v"])
            .shorthands(&[
                ("-vc", "conf"), ("--verbose-conf", "conf"), ("--verbose-stat", "stat"),
                ("--verbose-time", "time"), ("--verbose-used", "used"), ("--verbose-more", "more"),
                ("--verbose-more-conf", "more-conf"), ("--verbose-more-stat", "more-stat"),
                ("--verbose-more-time", "more-time"), ("--verbose-more-used", "more-used"),
                ("-vs", "stat"), ("-vt", "time"), ("-vu", "used"), ("-vv", "more"),
                ("-vvc", "more-conf"), ("-vvs", "more-stat"), ("-vvt", "more-time"),
                ("-vvu", "more-used"), ("-vC", "more-conf"), ("-vS", "more-stat"),
                ("-vT", "more-time"), ("-vU", "more-used"),
            ]),

    /// TCP port of the server; set it on both ends
    #[arg(long, value_name = "PORT", default_value_t = ports::CONTROL, help_heading = SERVER)]
    port: u16 =
        entry(Scope::Both).names(&["-lp", "--listen-port"]).of_connection(),
    /// Server: listen only on this address. Client: connect from this address, which also selects
    /// the device [default: all addresses]
    #[arg(long, value_name = "ADDRESS", help_heading = SERVER)]
    bind: Option<IpAddr> =
        entry(Scope::Both).not_in(&[Mesh]).of_connection(),
    /// Options of tests over sockets.
    #[command(flatten)]
    sockets: SocketOptions,
    /// Limits for the results.
    #[command(flatten)]
    limits: LimitOptions,
    /// Limits of a server, and how a client identifies itself to it.
    #[command(flatten)]
    server: ServerArgs,
}
}

impl Options {
    /// Returns `true` if an option names several devices of one end.
    pub(super) fn names_several_devices(&self) -> bool {
        End::ALL
            .into_iter()
            .filter_map(|end| value(&self.id, end))
            .any(|list| list.as_slice().len() > 1)
    }
}
