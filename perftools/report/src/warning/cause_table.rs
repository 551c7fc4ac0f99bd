//! The causes of slow and failed tests, and the counters that show them.
//!
//! The names are those of Linux 6.12: `rxe_hw_counters.c`, `counters.c` of mlx5, `main.c` of mlx4,
//! `hw_counters.c` of bnxt_re, `verbs.c` of irdma, `efa_verbs.c`, `erdma_verbs.c`,
//! `hns_roce_main.c`, `sysfs.c` of the core for the counters of ports, and `proc.c` of TCP/IP.

use super::WarningKind;

/// A cause, and the counters that show it.
pub(super) struct Cause {
    /// Kind for programs to match.
    pub(super) kind: WarningKind,
    /// Description.
    pub(super) text: &'static str,
    /// Next thing to look at.
    pub(super) help: &'static str,
    /// Counters that show the cause.
    pub(super) counters: &'static [CauseCounter],
}

/// A counter that shows a cause.
pub(super) struct CauseCounter {
    /// Name with its group. `#` stands for a number.
    pub(super) name: &'static str,
    /// Rate per second below which the counter is normal.
    pub(super) normal: u32,
}

/// A counter that is zero if nothing is wrong.
const fn any(name: &'static str) -> CauseCounter {
    CauseCounter { name, normal: 0 }
}

/// A counter that also increases in normal operation, up to this rate per second.
const fn above(normal: u32, name: &'static str) -> CauseCounter {
    CauseCounter { name, normal }
}

/// All causes. A cause that leads to others precedes them, and the first one is named.
pub(super) const CAUSES: &[Cause] = &[
    Cause {
        kind: WarningKind::LinkDown,
        text: "the link went down",
        help: "check the cable, the transceiver and the port of the switch (`ribinfo check link`)",
        counters: &[
            any("hw_counters/link_downed"), // rxe
            any("counters/link_downed"),
            any("netdev/carrier_down_count"),
            any("ethtool/link_down_events_phy"), // mlx5
        ],
    },
    Cause {
        kind: WarningKind::SymbolErrors,
        text: "packets were damaged on the link",
        help: "clean or replace the cable and the transceiver, and check the forward error correction of both ports",
        counters: &[
            any("counters/symbol_error"),
            any("counters/link_error_recovery"),
            any("counters/local_link_integrity_errors"),
            any("counters/port_rcv_errors"),
            any("counters/port_rcv_remote_physical_errors"),
            any("hw_counters/rx_icrc_encapsulated"), // mlx5
            any("netdev/rx_crc_errors"),
            any("netdev/rx_frame_errors"),
            any("ethtool/rx_crc_errors_phy"), // mlx5
            any("ethtool/rx_symbol_err_phy"), // mlx5
            any("ethtool/rx_crc_errors.nic"), // ice, the network driver of irdma
            any("Tcp/InCsumErrors"),
            any("Udp/InCsumErrors"),
        ],
    },
    Cause {
        kind: WarningKind::ReceiverNotReady,
        text: "RNR: the receiver had no receive request posted",
        help: "find the program that posts too few receives: rperf's receivers always have one posted, but other programs use the port as well",
        counters: &[
            any("hw_counters/rcvd_rnr_err"),             // rxe
            any("hw_counters/send_rnr_err"),             // rxe
            any("hw_counters/retry_rnr_exceeded_err"),   // rxe
            any("hw_counters/rnr_nak_retry_err"),        // mlx5
            any("hw_counters/out_of_buffer"),            // mlx5
            any("hw_counters/req_rnr_retries_exceeded"), // mlx5
            any("hw_counters/rq_num_rnr"),               // mlx4
            any("hw_counters/sq_num_rnr"),               // mlx4
            any("hw_counters/sq_num_rree"),              // mlx4
            any("hw_counters/rnr_naks_rcvd"),            // bnxt_re
            any("hw_counters/rx_out_of_buffer"),         // bnxt_re
        ],
    },
    Cause {
        kind: WarningKind::Discards,
        text: "a port or a host discarded packets",
        help: "enable flow control (PFC or pause frames) on both ports and on the switch, or limit the sender with --rate-limit",
        counters: &[
            any("hw_counters/send_err"), // rxe: the network stack did not accept a packet
            any("counters/port_xmit_discards"),
            any("counters/VL15_dropped"),
            any("counters/excessive_buffer_overrun_errors"),
            any("counters/port_rcv_switch_relay_errors"),
            any("counters/port_rcv_constraint_errors"),
            any("counters/port_xmit_constraint_errors"),
            any("hw_counters/rx_roce_discards"),      // bnxt_re
            any("hw_counters/tx_roce_discards"),      // bnxt_re
            any("hw_counters/rx_drops"),              // efa
            above(10, "hw_counters/ip4InDiscards"),   // irdma
            above(10, "hw_counters/ip6InDiscards"),   // irdma
            any("hw_counters/tx_disable_drop_cnt"),   // erdma
            any("hw_counters/tx_bps_limit_drop_cnt"), // erdma
            any("hw_counters/tx_pps_limit_drop_cnt"), // erdma
            any("hw_counters/rx_disable_drop_cnt"),   // erdma
            any("hw_counters/rx_bps_limit_drop_cnt"), // erdma
            any("hw_counters/rx_pps_limit_drop_cnt"), // erdma
            // Packets of unknown protocols, such as LLDP, count as dropped.
            above(10, "netdev/rx_dropped"),
            above(10, "netdev/tx_dropped"),
            any("netdev/rx_missed_errors"),
            any("netdev/rx_fifo_errors"),
            any("netdev/rx_over_errors"),
            any("netdev/tx_fifo_errors"),
            any("ethtool/rx_discards_phy"),       // mlx5
            any("ethtool/tx_discards_phy"),       // mlx5
            any("ethtool/rx_prio#_buf_discard"),  // mlx5
            any("ethtool/rx_prio#_cong_discard"), // mlx5
            any("ethtool/rx_prio#_discards"),     // mlx5
            any("ethtool/rx_stat_discard"),       // bnxt_en
            any("ethtool/tx_stat_discard"),       // bnxt_en
            any("ethtool/rx_dropped.nic"),        // ice
            any("Udp/RcvbufErrors"),
            any("Udp/SndbufErrors"),
            any("Udp/MemErrors"),
            any("TcpExt/TCPRcvQDrop"),
            any("TcpExt/TCPBacklogDrop"),
        ],
    },
    Cause {
        kind: WarningKind::PacketLoss,
        text: "packets were lost or reordered on the way",
        help: "look at the discards and errors of each switch port on the path",
        counters: &[
            above(1, "hw_counters/out_of_seq_request"), // rxe
            above(1, "hw_counters/rcvd_seq_err"),       // rxe
            // On a busy host rxe also retries requests whose acknowledgement is only late.
            above(1, "hw_counters/completer_retry_err"), // rxe
            any("hw_counters/retry_exceeded_err"),       // rxe
            above(1, "hw_counters/out_of_sequence"),     // mlx5
            above(1, "hw_counters/packet_seq_err"),      // mlx5
            above(1, "hw_counters/implied_nak_seq_err"), // mlx5
            above(1, "hw_counters/local_ack_timeout_err"), // mlx5
            any("hw_counters/req_transport_retries_exceeded"), // mlx5
            above(1, "hw_counters/roce_adp_retrans"),    // mlx5
            any("hw_counters/roce_adp_retrans_to"),      // mlx5
            above(1, "hw_counters/rq_num_oos"),          // mlx4
            above(1, "hw_counters/sq_num_oos"),          // mlx4
            above(1, "hw_counters/sq_num_to"),           // mlx4
            above(1, "hw_counters/sq_num_tree"),         // mlx4
            above(1, "hw_counters/to_retransmits"),      // bnxt_re
            above(1, "hw_counters/seq_err_naks_rcvd"),   // bnxt_re
            above(1, "hw_counters/missing_resp"),        // bnxt_re
            any("hw_counters/max_retry_exceeded"),       // bnxt_re
            above(1, "hw_counters/oos_drop_count"),      // bnxt_re
            above(1, "hw_counters/tcpRetransSegs"),      // irdma
            above(10, "Tcp/RetransSegs"),
            above(1, "TcpExt/TCPTimeouts"),
        ],
    },
    Cause {
        kind: WarningKind::Duplicates,
        text: "requests arrived more than once",
        help: "look for a network loop, or for acknowledgements that were lost or late on the way back",
        counters: &[
            above(1, "hw_counters/duplicate_request"), // rxe, mlx5
            above(1, "hw_counters/rq_num_dup"),        // mlx4
            above(1, "hw_counters/dup_req"),           // bnxt_re
            above(10, "TcpExt/TCPDSACKOldSent"),
        ],
    },
    Cause {
        kind: WarningKind::RejectedRequests,
        text: "a device rejected requests",
        help: "look at the error of the test, and for other programs with errors on this port",
        counters: &[
            any("hw_counters/req_remote_access_errors"),   // mlx5
            any("hw_counters/req_remote_invalid_request"), // mlx5
            any("hw_counters/resp_local_length_error"),    // mlx5
            any("hw_counters/resp_remote_access_errors"),  // mlx5
            any("hw_counters/sq_num_rae"),                 // mlx4
            any("hw_counters/sq_num_rire"),                // mlx4
            any("hw_counters/remote_access_err"),          // bnxt_re
            any("hw_counters/remote_invalid_req_err"),     // bnxt_re
            any("hw_counters/rdma_read_wr_err"),           // efa
            any("hw_counters/rdma_write_wr_err"),          // efa
        ],
    },
    Cause {
        kind: WarningKind::Congestion,
        text: "congestion control (ECN, CNP) slowed the sender down",
        help: "look for other traffic to the same receiver, and check the ECN thresholds of the switches",
        counters: &[
            above(100, "hw_counters/np_ecn_marked_roce_packets"), // mlx5
            above(100, "hw_counters/np_cnp_sent"),                // mlx5
            above(100, "hw_counters/rp_cnp_handled"),             // mlx5
            above(100, "hw_counters/rp_cnp_ignored"),             // mlx5
            above(100, "hw_counters/roce_slow_restart_cnps"),     // mlx5
            above(100, "hw_counters/rx_ecn_marked_pkts"),         // bnxt_re
            above(100, "hw_counters/rx_cnp_pkts"),                // bnxt_re
            above(100, "hw_counters/tx_cnp_pkts"),                // bnxt_re
            above(100, "hw_counters/RxECNMrkd"),                  // irdma
            above(100, "hw_counters/cnpHandled"),                 // irdma
            above(100, "hw_counters/cnpIgnored"),                 // irdma
            above(100, "hw_counters/cnpSent"),                    // irdma
            above(100, "hw_counters/rx_cnp_pkt"),                 // hns
            above(100, "hw_counters/tx_cnp_pkt"),                 // hns
            above(10, "IpExt/InCEPkts"),
            above(10, "TcpExt/TCPDeliveredCE"),
        ],
    },
    Cause {
        kind: WarningKind::PauseFrames,
        text: "flow control paused the link",
        help: "find the receiver that is too slow: the end that sends pause frames, or a host behind the same switch",
        counters: &[
            // Its unit depends on the device: clock ticks without flow control credits.
            above(1_000_000, "counters/port_xmit_wait"),
            above(100, "ethtool/rx_pause_ctrl_phy"), // mlx5
            above(100, "ethtool/tx_pause_ctrl_phy"), // mlx5
            above(100, "ethtool/rx_global_pause"),   // mlx5
            above(100, "ethtool/tx_global_pause"),   // mlx5
            above(100, "ethtool/rx_prio#_pause"),    // mlx5
            above(100, "ethtool/tx_prio#_pause"),    // mlx5
            any("ethtool/tx_pause_storm_warning_events"), // mlx5
            any("ethtool/tx_pause_storm_error_events"), // mlx5
            above(100, "ethtool/rx_pause"),          // mlx4_en
            above(100, "ethtool/tx_pause"),          // mlx4_en
            above(100, "ethtool/rx_pause_prio_#"),   // mlx4_en
            above(100, "ethtool/tx_pause_prio_#"),   // mlx4_en
            above(100, "ethtool/rx_pause_frames"),   // bnxt_en
            above(100, "ethtool/tx_pause_frames"),   // bnxt_en
            above(100, "ethtool/rx_pfc_ena_frames_pri#"), // bnxt_en
            above(100, "ethtool/tx_pfc_ena_frames_pri#"), // bnxt_en
            above(100, "ethtool/link_xoff_rx.nic"),  // ice
            above(100, "ethtool/link_xoff_tx.nic"),  // ice
            above(100, "ethtool/rx_priority_#_xoff.nic"), // ice
            above(100, "ethtool/tx_priority_#_xoff.nic"), // ice
        ],
    },
];
