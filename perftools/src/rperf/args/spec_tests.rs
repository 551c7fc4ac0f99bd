use std::time::Duration;

use base::error::Result;
use measure::spec::modes::Wait;
use measure::spec::plan::{Pattern, Service, Verb};
use measure::spec::test::Test;
use measure::spec::{Bounds, Limit, MAX_DEPTH, Spec};

use crate::rperf::args::command_line::Options;
use clap::Parser;
use ibverbs::AccessFlags;

fn spec(line: &str) -> Result<Spec> {
    let args = std::iter::once("rperf").chain(line.split_whitespace());
    Options::try_parse_from(args).unwrap().to_spec(Test::RcBw)
}

fn bounds() -> Bounds {
    Bounds {
        device: "dev0".into(),
        max_msg: 8 << 20,
        max_qp_wr: 1024,
        max_cqe: 2048,
        mtu: 4096,
        services: vec![Service::Rc, Service::Uc, Service::Ud, Service::Xrc],
        infiniband: true,
        max_read: 8 << 20,
        max_write: 8 << 20,
        signaled_sizes: 0..0,
        atomics: true,
        max_srq_wr: 1024,
    }
}

fn default_spec(test: Test) -> Spec {
    Options::try_parse_from(["rperf"])
        .unwrap()
        .to_spec(test)
        .unwrap()
}

#[test]
fn missing_capabilities_are_reported_in_one_line() {
    let iwarp = Bounds {
        services: vec![Service::Rc],
        infiniband: false,
        atomics: false,
        ..bounds()
    };
    for (test, expected) in [
        (
            Test::UcBw,
            "dev0 does not support UC (unreliable connections)",
        ),
        (Test::UdLat, "dev0 does not support UD"),
        (
            Test::RcFetchAddMr,
            "dev0 does not support atomics; help: select another device with --id (-i)",
        ),
        (Test::XrcLat, "dev0 does not support XRC"),
    ] {
        let text = default_spec(test).fit(&iwarp).unwrap_err().to_string();
        assert!(text.starts_with(expected) && !text.contains('\n'), "{text}");
    }
    let efa = Bounds {
        services: vec![Service::Ud, Service::Srd],
        max_write: 0,
        ..bounds()
    };
    for (test, expected) in [
        (
            Test::RcBw,
            "RC (reliable connections); help: run ud_bw or srd_bw",
        ),
        (
            Test::RcRdmaReadLat,
            "RC (reliable connections); help: run srd_rdma_read_lat",
        ),
        (
            Test::SrdRdmaWriteBw,
            "RDMA writes; help: select another device with --id (-i)",
        ),
        (
            Test::DcFetchAddMr,
            "DC (dynamically connected transport); help: select another device with --id (-i)",
        ),
    ] {
        let text = default_spec(test).fit(&efa).unwrap_err().to_string();
        assert_eq!(text, format!("dev0 does not support {expected}"));
    }
    let shape = default_spec(Test::RcRdmaWriteLat).fit(&iwarp).unwrap();
    assert_eq!(
        (shape.plan.verb, shape.plan.pattern),
        (Verb::Write, Pattern::Polled)
    );
    let required = Spec {
        immediate: Some(true),
        ..default_spec(Test::RcRdmaWriteBw)
    };
    assert!(
        required
            .fit(&iwarp)
            .unwrap_err()
            .to_string()
            .contains("dev0 does not support RDMA writes with immediate data")
    );
}

#[test]
fn messages_over_srd_are_unordered_and_arrive() {
    let efa = Bounds {
        services: vec![Service::Ud, Service::Srd],
        max_msg: 8928,
        max_read: 1 << 30,
        max_write: 1 << 30,
        ..bounds()
    };
    for (test, verb, size) in [
        (Test::SrdBw, Verb::Send, 4 << 10),
        (Test::SrdRdmaWriteBw, Verb::WriteImm, 64 << 10),
        (Test::SrdRdmaReadBw, Verb::Read, 64 << 10),
    ] {
        let shape = default_spec(test).fit(&efa).unwrap();
        assert_eq!((shape.plan.verb, shape.msg_size), (verb, size));
        assert!(shape.is_reliable() && !shape.plan.service.is_ordered());
    }
    let large = Spec {
        msg_size: 9000,
        ..default_spec(Test::SrdBw)
    };
    let text = large.fit(&efa).unwrap_err().to_string();
    assert!(text.contains("the maximum of dev0 is 8928 bytes"), "{text}");
    let polled = Spec {
        immediate: Some(false),
        ..default_spec(Test::SrdRdmaWriteLat)
    };
    let text = polled.fit(&efa).unwrap_err().to_string();
    assert!(text.contains("polling memory"), "{text}");
}

#[test]
fn the_mtu_limits_the_size_of_datagrams() {
    let text = Spec {
        msg_size: 4097,
        ..default_spec(Test::UdBw)
    }
    .fit(&bounds())
    .unwrap_err()
    .to_string();
    assert!(text.contains("4 KiB in one datagram"), "{text}");
}

#[test]
fn defaults_are_those_of_qperf() {
    let s = spec("").unwrap();
    assert_eq!(
        (s.msg_size, s.limit),
        (65536, Limit::Time(Duration::from_secs(2)))
    );
    assert_eq!(s.client.timeout, Duration::from_secs(5));
}

#[test]
fn errors_of_invalid_values_name_limit_and_option() {
    for (line, expected) in [
        ("--msg-size 8G", &["8 GiB", "1 GiB", "-m"][..]),
        ("--msg-size 0", &["the minimum is 1 byte", "-m"]),
        ("--messages 0", &["-n"]),
        ("--time 0", &["-t"]),
        ("--time 10000h", &["-t", "7 d"]),
        ("--depth 0", &["--depth", "16384"]),
        ("--depth 1000000", &["--depth", "16384"]),
        ("--mtu 1000", &["-mt", "4096"]),
        ("--timeout 0", &["-to"]),
    ] {
        let text = spec(line).unwrap_err().to_string();
        assert!(expected.iter().all(|s| text.contains(s)), "{line}: {text}");
    }
}

#[test]
fn errors_of_device_limits_name_the_device() {
    let text = spec("--msg-size 9M")
        .unwrap()
        .fit(&bounds())
        .unwrap_err()
        .to_string();
    assert!(text.contains("dev0") && text.contains("8 MiB"), "{text}");
}

#[test]
fn memory_is_limited_for_every_verb() {
    for test in [
        Test::RcBw,
        Test::RcRdmaWriteBw,
        Test::RcRdmaReadBw,
        Test::RcRdmaWritePollLat,
    ] {
        let large = Spec {
            msg_size: 8 << 20,
            ..default_spec(test)
        };
        assert_eq!(large.fit(&bounds()).unwrap().memory(), 16 << 20, "{test:?}");
        let many = Spec {
            qps: 256,
            verify: true,
            ..large
        };
        if let Ok(plan) = many.fit(&bounds()).map(|shape| shape.plan) {
            let text = many
                .shape_for_depth(1, plan, &bounds())
                .unwrap_err()
                .to_string();
            assert!(text.contains(": the maximum is 2 GiB"), "{test:?}: {text}");
        }
    }
}

#[test]
fn a_limited_rate_is_counted_to_10_ms() {
    for (line, signal_every) in [
        ("", 64),
        ("--rate-limit 300KiB/s", 1),
        ("--rate-limit 50MiB/s", 8),
        ("--rate-limit 50MiB/s --qps 2", 4),
        ("--rate-limit 50GiB/s", 64),
        ("--rate-limit 300KiB/s --cq-moderation 16", 16),
    ] {
        let mut spec = spec(line).unwrap();
        spec.msg_size = 64 << 10;
        spec.depth = 256;
        assert_eq!(
            spec.fit(&bounds()).unwrap().signal_every,
            signal_every,
            "{line}"
        );
    }
}

#[test]
fn latency_tests_request_few_completions() {
    for (line, signal_every) in [
        ("", 32),
        ("--cq-moderation 1", 1),
        ("--cq-moderation 100", 32),
        ("--verify", 1),
    ] {
        let mut spec = spec(line).unwrap();
        spec.test = Test::RcLat;
        spec.depth = 64;
        assert_eq!(
            spec.fit(&bounds()).unwrap().signal_every,
            signal_every,
            "{line}"
        );
    }
}

/// A read that confirms the writes needs access to the peer's memory.
#[test]
fn only_writes_on_iwarp_let_the_peer_read() {
    let iwarp = Bounds {
        infiniband: false,
        ..bounds()
    };
    for (test, bounds, is_confirmed) in [
        (Test::RcRdmaWriteBw, &iwarp, true),
        (Test::RcRdmaWriteBiBw, &iwarp, true),
        (Test::RcRdmaWritePollLat, &iwarp, false),
        (Test::RcBw, &iwarp, false),
        (Test::RcRdmaWriteBw, &bounds(), false),
    ] {
        let shape = default_spec(test).fit(bounds).unwrap();
        let lets_read = shape.remote_access().contains(AccessFlags::REMOTE_READ);
        assert_eq!(
            (shape.confirms_writes, lets_read),
            (is_confirmed, is_confirmed),
            "{test:?}"
        );
    }
}

#[test]
fn every_completion_is_requested_where_faster_or_needed() {
    let siw = Bounds {
        infiniband: false,
        signaled_sizes: 4096..16384,
        ..bounds()
    };
    for (test, line, on_iwarp, on_roce) in [
        (Test::RcBw, "--msg-size 4K", 1, 254),
        (Test::RcRdmaWriteLat, "--msg-size 8K", 1, 32),
        (Test::RcLat, "--msg-size 4K --cq-moderation 8", 8, 8),
        (Test::RcLat, "--msg-size 4095", 32, 32),
        (Test::RcBw, "--msg-size 16K", 254, 254),
        (Test::RcBw, "--msg-size 16K --verify", 1, 1),
        (Test::RcRdmaReadBw, "--msg-size 16K", 1, 254),
        (Test::RcRdmaReadLat, "--msg-size 16K", 1, 1),
    ] {
        let spec = Spec {
            test,
            ..spec(line).unwrap()
        };
        for (bounds, expected) in [(&siw, on_iwarp), (&bounds(), on_roce)] {
            let signal_every = spec.fit(bounds).unwrap().signal_every;
            assert_eq!(signal_every, expected, "{test:?} {line}");
        }
    }
}

#[test]
fn remote_options_override_on_the_server() {
    let s =
        spec("--id a --id remote=b --wait poll --wait local=events --timeout 3 --timeout remote=9")
            .unwrap();
    assert_eq!(s.client.id.unwrap().name, "a");
    assert_eq!(s.server.id.unwrap().name, "b");
    assert_eq!((s.client.wait, s.server.wait), (Wait::Events, Wait::Poll));
    assert_eq!(
        (s.client.timeout.as_secs(), s.server.timeout.as_secs()),
        (3, 9)
    );
}

#[test]
fn many_queue_pairs_have_small_queues() {
    let large = Bounds {
        max_qp_wr: 32 << 10,
        max_cqe: 4 << 20,
        ..bounds()
    };
    let fit = |test, line: &str| {
        let spec = Spec {
            test,
            ..spec(line).unwrap()
        };
        let shape = spec.fit(&large).unwrap();
        (shape.depth, shape.send_queue_len())
    };
    // Any queue pair may have to hold all messages.
    assert_eq!(fit(Test::UcBw, "--qps 16384"), (64, 70));
    assert_eq!(fit(Test::UcBw, "--threads 4 --qps 4096"), (64, 70));
    // Each queue pair has its share.
    assert_eq!(fit(Test::RcBw, "--qps 16384"), (16_384, 3));
    assert_eq!(fit(Test::RcBw, "--threads 4 --qps 4096"), (16_384, 6));
    // The queues of few queue pairs hold all messages.
    assert_eq!(fit(Test::RcBw, "--qps 16 --depth 1000"), (16_000, 16_006));
}

#[test]
fn completion_queue_that_is_too_small_is_an_error() {
    let error = spec("--qps 1024").unwrap().fit(&bounds()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("1024 queue pairs of one thread"), "{text}");
    assert!(text.contains("the maximum of dev0 is 2048"), "{text}");
}

proptest::proptest! {
    #[test]
    fn every_shape_fits_its_device(depth in 1..=MAX_DEPTH, size in 1_u64..8 << 20, verify: bool, slots in 16_u32..100_000, n in 1_u64..1000, qps in 1_u32..9) {
        let mut s = spec("").unwrap();
        (s.depth, s.msg_size, s.verify, s.qps) = (depth, size, verify, qps);
        for limit in [s.limit, Limit::Messages(n)] {
            s.limit = limit;
            let shape = s.fit(&Bounds { max_qp_wr: slots, max_cqe: slots * 2 * qps, ..bounds() }).unwrap();
            proptest::prop_assert!(shape.depth >= 1 && shape.depth <= depth * qps);
            proptest::prop_assert!(shape.send_queue_len() <= slots && shape.receives() <= slots, "{shape:?}");
            proptest::prop_assert!(shape.batch >= 1 && shape.batch <= shape.depth);
            proptest::prop_assert_eq!(s.shape_for_depth(shape.depth, shape.plan, &bounds()).unwrap(), shape);
        }
    }
}
