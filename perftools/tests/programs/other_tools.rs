//! Command lines of the manual pages of qperf, perftest and ibping, typed at `rperf` and `ribping`:
//! each one means the same here, or the answer names the equivalent.

use clap::Parser;
use perftools::ribping::args::PingArgs;
use perftools::rperf::args::{self, Invocation};

/// Expected answer.
enum Answer {
    /// The command line is accepted.
    Accepted,
    /// It is refused, and the error contains this text.
    Refused(&'static str),
    /// It is refused, and this is the line to run instead.
    Run(&'static str),
}
use Answer::{Accepted, Refused, Run};

const LINES: &[(&str, Answer)] = &[
    // qperf
    ("rperf", Accepted),
    ("rperf myserver tcp_bw tcp_lat", Accepted),
    ("rperf myserver udp_bw quit", Accepted),
    ("rperf myserver rc_rdma_read_bw rc_rdma_write_bw", Accepted),
    ("rperf myserver -m 8K -t 5 rc_bi_bw -v", Accepted),
    ("rperf myserver -i mlx5_0:1 -cm1 -lp 4000 ud_lat", Accepted),
    ("rperf myserver -li mlx5_0 -ri mlx5_1 -cp1 rc_lat", Accepted),
    ("rperf myserver -oo msg_size:1:64K:*2 -vu tcp_bw", Accepted),
    ("rperf myserver -lca 1 -rca 2 -to 9 rc_bw", Accepted),
    (
        "rperf myserver --loc_timeout 3 --rem_cq_poll 1 rc_bw",
        Accepted,
    ),
    ("rperf myserver -nr 4 rc_rdma_read_bw", Accepted),
    ("rperf myserver --wait_server 10 rc_bw", Accepted),
    ("rperf myserver --wait 10 rc_bw", Accepted),
    ("rperf myserver -f1 -uu -ub -e 5 rc_bw", Accepted),
    ("rperf myserver -ip 5000 -sb 64K tcp_bw", Accepted),
    (
        "rperf myserver -T 105 tcp_bw",
        Refused("the former -T of qperf is --timeout (-to)"),
    ),
    (
        "rperf myserver -S 64K tcp_bw",
        Refused("the former -S of qperf is --sock-buf-size (-sb)"),
    ),
    (
        "rperf myserver -R 4 rc_rdma_read_bw",
        Refused("is --rd-atomic (-nr)"),
    ),
    ("rperf myserver sdp_bw", Refused("Linux no longer has SDP")),
    (
        "rperf myserver --alt_port 2 rc_bw",
        Refused("path migration"),
    ),
    // perftest: its programs
    ("rperf ib_send_bw", Run("rperf")),
    ("rperf ib_send_bw HOST", Run("rperf HOST rc_bw")),
    (
        "rperf ib_send_lat -n 1000 HOST",
        Run("rperf HOST --messages 1000 rc_lat"),
    ),
    (
        "rperf ib_send_bw -c UD -a HOST",
        Run(
            "rperf HOST --sizes 2..4K ud_bw`; without an equivalent: -a, --all (4K is the largest MTU",
        ),
    ),
    ("rperf ib_send_bw -c DC HOST", Run("rperf HOST dc_bw")),
    (
        "rperf ib_write_bw -c SRD HOST",
        Run("rperf HOST --immediate off srd_rdma_write_bw"),
    ),
    (
        "rperf ib_atomic_bw -c SRD HOST",
        Refused("no test srd_fetch_add_mr, only these: rc_fetch_add_mr"),
    ),
    (
        "rperf ib_send_bw -c SRD --sl 2 HOST",
        Run("rperf HOST srd_bw`; without an equivalent: -S, --sl (no effect on srd_bw)"),
    ),
    (
        "rperf ib_write_bw -c UD HOST",
        Refused("no test ud_rdma_write_bw, only these: rc_rdma_write_bw"),
    ),
    (
        "rperf ib_atomic_bw -b HOST",
        Refused("no test rc_fetch_add_bi_bw, only these: rc_fetch_add_mr"),
    ),
    (
        "rperf ib_atomic_lat -A CMP_AND_SWAP HOST",
        Run("rperf HOST rc_compare_swap_lat"),
    ),
    (
        "rperf ib_send_lat -t 64 HOST",
        Run("rperf HOST rc_lat`; without an equivalent: -t, --tx-depth (no effect on rc_lat)"),
    ),
    (
        "rperf ib_write_bw --report_gbits -D 10 -q 2 HOST",
        Run("rperf HOST --time 10 --qps 2 --immediate off --bits rc_rdma_write_bw"),
    ),
    (
        "rperf ib_send_bw --report_gb HOST",
        Run("rperf HOST --bits rc_bw"),
    ),
    (
        "rperf ib_read_bw -o 4 -u 14 HOST",
        Run("rperf HOST --rd-atomic 4 --qp-timeout 14 rc_rdma_read_bw"),
    ),
    (
        "rperf ib_send_bw --use_rocm=0 HOST",
        Refused("--use_rocm (rperf supports GPUs of CUDA only)"),
    ),
    (
        "rperf ib_send_bw --data_validation HOST",
        Run("rperf HOST --verify rc_bw"),
    ),
    (
        "rperf ib_send_bw --send_with_imm HOST",
        Run("rperf HOST --immediate on rc_bw"),
    ),
    (
        "rperf ib_write_bw -c DC --log_dci_streams 3 HOST",
        Run(
            "rperf HOST --immediate off dc_rdma_write_bw`; without an equivalent: --log_dci_streams (an initiator has no streams)",
        ),
    ),
    (
        "rperf ib_send_bw --option_of_tomorrow HOST",
        Refused("--option_of_tomorrow is not known here"),
    ),
    (
        "rperf raw_ethernet_bw --client -E 1:2:3:4:5:6",
        Refused("does not measure raw Ethernet"),
    ),
    // perftest: its options
    (
        "rperf -d rxe0 -x 1 -s 64K HOST rc_bw",
        Refused(
            "`-d`, `-x`, `-s`; help: perftest's -d, --ib-dev is --id DEVICE in rperf; perftest's -x, --gid-index is --gid-index in rperf; perftest's -s, --size is --msg-size in rperf",
        ),
    ),
    (
        "rperf -d rxe0 -m 4096 -t 128 HOST rc_bw",
        Refused(
            "-m is --msg-size in rperf, and perftest's -m, --mtu is --mtu; -t is --time in rperf, and perftest's -t, --tx-depth is --depth",
        ),
    ),
    (
        "rperf HOST -t 128 rc_bw",
        Refused("specify -t 128s or --depth 128"),
    ),
    ("rperf HOST -t 128s rc_bw", Accepted),
    ("rperf HOST -t 120 rc_bw", Accepted),
    ("rperf HOST -t 128 tcp_bw", Accepted),
    ("rperf HOST -m 4096 rc_bw", Accepted),
    // perftest's --port means the same.
    ("rperf HOST --port 18515 rc_bw", Accepted),
    (
        "rperf -R HOST rc_bw",
        Refused("perftest's -R, --rdma_cm is --use-cm on"),
    ),
    (
        "rperf -a -F HOST rc_bw",
        Refused("perftest's -a, --all is --sizes 2..8M"),
    ),
    (
        "rperf HOST -e rc_bw",
        Refused("perftest's -e, --events is --wait events"),
    ),
    (
        "rperf HOST -u 14 rc_bw",
        Refused("perftest's -u, --qp-timeout is --qp-timeout"),
    ),
    (
        "rperf HOST -g ud_bw",
        Refused("perftest's -g, --mcg is --multicast 1"),
    ),
    (
        "rperf HOST -r 512 rc_bw",
        Refused("perftest's -r, --rx-depth has no equivalent: receives follow --depth"),
    ),
    (
        "rperf HOST -S 3 rc_bw",
        Refused("perftest's -S, --sl is --service-level"),
    ),
    (
        "rperf HOST -T 105 rc_bw",
        Refused("perftest's -T, --tos is --traffic-class"),
    ),
    (
        "rperf HOST -f 2 rc_bw",
        Refused("perftest's -f, --margin is --warm-up"),
    ),
    (
        "rperf HOST -p 18515 rc_bw",
        Refused("perftest's -p, --port is --port"),
    ),
    (
        "rperf HOST -i 1 rc_bw",
        Refused("perftest's -i, --ib-port is --id DEVICE:PORT"),
    ),
    (
        "rperf HOST -q 4 rc_bw",
        Refused("perftest's -q, --qp is --qps"),
    ),
    (
        "rperf -q4 HOST rc_bw",
        Refused("perftest's -q, --qp is --qps"),
    ),
    (
        "rperf -m4096 HOST rc_bw",
        Refused("the value is a separate word: -m 4096"),
    ),
    (
        "rperf -e HOST rc_bw",
        Refused("perftest's -e, --events is --wait events"),
    ),
    (
        "rperf -g HOST ud_bw",
        Refused("perftest's -g, --mcg is --multicast 1"),
    ),
    (
        "rperf -t 200 ms HOST rc_bw",
        Refused("`ms` was taken as the name of the server's host"),
    ),
    ("rperf HOST --use_cuda 0 rc_bw", Refused("--gpu cuda:N")),
    (
        "rperf rc_bw HOST",
        Refused("the host comes before the tests: `rperf HOST rc_bw`"),
    ),
    // ibping
    ("ribping -S", Accepted),
    ("ribping 4", Accepted),
    ("ribping -G 0x0002c9000100d051", Accepted),
    ("ribping -c 10 -f 4", Accepted),
    ("ribping -C mlx4_0 -P 1 -L 4", Accepted),
    ("ribping -o 3 -S", Accepted),
];

/// Returns the error text, if the command line is refused.
fn answer(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    match words.next() {
        Some("rperf") => match args::parse(words) {
            Ok(Invocation::Client { tests, .. }) => tests
                .iter()
                .find_map(|run| run.options.to_specs(run.test).err())
                .map(|error| error.to_string()),
            Ok(Invocation::Server(_)) => None,
            Ok(other) => panic!("{line}: {other:?}"),
            Err(error) => Some(error.to_string()),
        },
        _ => PingArgs::try_parse_from(line.split_whitespace())
            .err()
            .map(|error| error.to_string()),
    }
}

#[test]
fn command_lines_of_other_tools_are_right_or_refused() {
    for (line, expected) in LINES {
        let text = answer(line);
        match expected {
            Accepted => assert_eq!(text, None, "{line}"),
            Refused(part) => {
                let text = text.unwrap_or_else(|| panic!("{line} is accepted"));
                assert!(text.contains(part), "{line}: {text}");
            }
            Run(run) => {
                let text = text.unwrap_or_else(|| panic!("{line} is accepted"));
                assert!(text.contains(&format!("run `{run}")), "{line}: {text}");
                let run = run.split('`').next().unwrap();
                assert_eq!(answer(run), None, "{line}: {run}");
            }
        }
    }
}
