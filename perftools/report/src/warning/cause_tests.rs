use test_support::text::assert_contains;

use super::*;

/// Returns the counters of one end of a test of two seconds.
fn side(increased: &[(&str, u64)]) -> SideStats {
    let increased = increased.iter().map(|(name, by)| ((*name).to_owned(), *by));
    SideStats {
        nanos: 2_000_000_000,
        port_counters: Some(CounterChanges {
            increased: increased.collect(),
            unknown: Vec::new(),
        }),
        ..SideStats::default()
    }
}

fn found(client: &[(&str, u64)], server: &[(&str, u64)]) -> Vec<(WarningKind, String)> {
    let warnings = find([&side(client), &side(server)], false, false);
    warnings
        .into_iter()
        .map(|w| (w.kind, w.to_string()))
        .collect()
}

#[test]
fn the_cause_names_the_counters_of_both_ends() {
    let found = found(
        &[
            ("hw_counters/completer_retry_err", 143),
            ("hw_counters/rcvd_seq_err", 131),
            ("hw_counters/sent_pkts", 20_000),
        ],
        &[("hw_counters/out_of_seq_request", 140)],
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0].0, WarningKind::PacketLoss);
    assert!(
        found[0].1.starts_with(
            "packets were lost or reordered on the way (client: completer_retry_err 143, rcvd_seq_err 131; server: out_of_seq_request 140); help: "
        ),
        "{found:?}"
    );
}

#[test]
fn each_driver_has_counters_for_each_cause() {
    for (kind, counters) in [
        (WarningKind::SymbolErrors, "counters/symbol_error"),
        (
            WarningKind::Discards,
            "counters/port_xmit_discards hw_counters/rx_roce_discards hw_counters/rx_drops Udp/RcvbufErrors",
        ),
        (WarningKind::LinkDown, "counters/link_downed"),
        (
            WarningKind::PacketLoss,
            "hw_counters/packet_seq_err hw_counters/local_ack_timeout_err hw_counters/sq_num_to hw_counters/seq_err_naks_rcvd hw_counters/tcpRetransSegs Tcp/RetransSegs",
        ),
        (
            WarningKind::ReceiverNotReady,
            "hw_counters/out_of_buffer hw_counters/rnr_nak_retry_err hw_counters/rq_num_rnr",
        ),
        (WarningKind::Duplicates, "hw_counters/duplicate_request"),
        (
            WarningKind::Congestion,
            "hw_counters/np_cnp_sent hw_counters/rx_ecn_marked_pkts hw_counters/cnpHandled IpExt/InCEPkts",
        ),
        (
            WarningKind::PauseFrames,
            "ethtool/rx_prio3_pause ethtool/tx_pfc_ena_frames_pri3",
        ),
    ] {
        for counter in counters.split(' ') {
            let found = found(&[], &[(counter, 10_000)]);
            let kinds: Vec<_> = found.iter().map(|(kind, _)| *kind).collect();
            assert_eq!(kinds, [kind], "{counter}");
            let evidence = format!("(server: {} 10000); help: ", short_name(counter));
            assert_contains(&found[0].1, &[&evidence]);
        }
    }
}

#[test]
fn a_cause_precedes_its_consequences() {
    let counters = [
        ("hw_counters/duplicate_request", 4),
        ("hw_counters/out_of_sequence", 4),
        ("counters/port_rcv_errors", 4),
    ];
    let kinds: Vec<_> = found(&counters, &[]).into_iter().map(|f| f.0).collect();
    let expected = [
        WarningKind::SymbolErrors,
        WarningKind::PacketLoss,
        WarningKind::Duplicates,
    ];
    assert_eq!(kinds, expected);
}

#[test]
fn normal_rates_are_no_cause() {
    // Two seconds at the limit of 100 per second.
    assert_eq!(found(&[("hw_counters/np_cnp_sent", 200)], &[]), []);
    assert_eq!(found(&[("hw_counters/np_cnp_sent", 201)], &[]).len(), 1);
    assert_eq!(found(&[("hw_counters/rx_pkts", 1_000_000)], &[]), []);
    let none = SideStats::default();
    assert_eq!(find([&none, &none], false, false), []);
}

#[test]
fn few_discards_are_not_the_cause_of_many_losses() {
    let kinds = |discards, lost| {
        let client = side(&[]);
        let mut server = side(&[("Udp/RcvbufErrors", discards)]);
        server.lost = lost;
        let found = find([&client, &server], false, false);
        found.into_iter().map(|w| w.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(81, 31_894), []);
    assert_eq!(kinds(30_000, 31_894), [WarningKind::Discards]);
    assert_eq!(kinds(81, 0), [WarningKind::Discards]);
}

#[test]
fn ends_that_share_a_port_are_counted_once() {
    let side = side(&[("hw_counters/rcvd_rnr_err", 5)]);
    let warnings = find([&side, &side], true, false);
    assert_eq!(warnings.len(), 1);
    let text = warnings[0].to_string();
    assert!(text.contains("posted (rcvd_rnr_err 5); help: "), "{text}");
}

#[test]
fn repeated_requests_that_arrived_are_no_loss() {
    let client = [("hw_counters/completer_retry_err", 40)];
    let server = [("hw_counters/duplicate_request", 38)];
    let found = |client: &[_], server: &[_], one_host| {
        let found = find([&side(client), &side(server)], false, one_host);
        let found = found
            .into_iter()
            .map(|warning| (warning.kind, warning.to_string()));
        found.collect::<Vec<_>>()
    };
    let late = found(&client, &server, false);
    assert_eq!(late.len(), 1, "{late:?}");
    assert_eq!(late[0].0, WarningKind::LateAcknowledgements);
    let evidence = "(client: completer_retry_err 40; server: duplicate_request 38)";
    assert!(late[0].1.contains(evidence), "{late:?}");
    assert!(late[0].1.ends_with("set --qp-timeout higher"), "{late:?}");
    // --qp-timeout has no effect on tests over TCP.
    let retransmitted = [("Tcp/RetransSegs", 40)];
    let late = found(&retransmitted, &[("TcpExt/TCPDSACKOldSent", 38)], false);
    assert_eq!(late[0].0, WarningKind::LateAcknowledgements);
    assert!(late[0].1.ends_with("short of processors"), "{late:?}");
    // A gap is a loss. Between two ends on one host there is no switch.
    let gap = [
        ("hw_counters/duplicate_request", 38),
        ("hw_counters/out_of_seq_request", 9),
    ];
    for one_host in [false, true] {
        let lost = found(&client, &gap, one_host);
        let kinds: Vec<_> = lost.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [WarningKind::PacketLoss, WarningKind::Duplicates]);
        for (_, text) in lost {
            let names_network = text.contains("switch port") || text.contains("network loop");
            assert_eq!(names_network, !one_host, "{text}");
        }
    }
    // One in a second is normal.
    assert_eq!(found(&[("hw_counters/out_of_sequence", 2)], &[], false), []);
}

#[test]
fn errors_are_explained_by_the_counters() {
    let changes = side(&[("hw_counters/retry_exceeded_err", 1)]).port_counters;
    let changes = changes.unwrap();
    let error = explain(Error::device("cannot send"), &changes, 1.0);
    let text = error.to_string();
    assert!(
        text.starts_with(
            "packets were lost or reordered on the way (retry_exceeded_err 1): cannot send; help: "
        ),
        "{text}"
    );
    let helpful = Error::test("x").with_help("do this");
    let text = explain(helpful, &changes, 1.0).to_string();
    assert!(
        text.ends_with("(retry_exceeded_err 1): x; help: do this"),
        "{text}"
    );
    let peers = Error::new(Kind::Peer, "the server: x");
    assert_eq!(explain(peers.clone(), &changes, 1.0), peers);
    let other = Error::device("y");
    let none = CounterChanges::default();
    assert_eq!(explain(other.clone(), &none, 1.0), other);
}

#[test]
fn numbers_in_names_stand_for_any_number() {
    assert!(shows_cause("ethtool/rx_prio0_pause") && shows_cause("ethtool/rx_prio7_discards"));
    assert!(!shows_cause("ethtool/rx_prio_pause") && !shows_cause("ethtool/rx_prio0x_pause"));
    assert!(!shows_cause("hw_counters/sent_pkts"));
}

#[test]
fn kinds_are_different_and_each_counter_has_one_cause() {
    let mut kinds: Vec<_> = kinds().collect();
    let counters = CAUSES.iter().flat_map(Cause::own_counters);
    let mut names: Vec<_> = counters.map(|c| (c.group, c.name)).collect();
    let (all_kinds, all_names) = (kinds.len(), names.len());
    kinds.sort_unstable();
    kinds.dedup();
    names.sort_unstable();
    names.dedup();
    assert_eq!((kinds.len(), names.len()), (all_kinds, all_names));
}
