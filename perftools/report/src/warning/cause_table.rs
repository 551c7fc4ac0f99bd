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
    /// Lines of counters that show the cause: the driver or `-`, the rate per second below which
    /// they are normal, the group, and the names. `#` stands for a number.
    pub(super) counters: &'static str,
}

impl Cause {
    /// Returns the counters that show this cause.
    pub(super) fn own_counters(&self) -> impl Iterator<Item = CauseCounter> + use<> {
        self.counters.lines().flat_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let normal = words.next().and_then(|rate| rate.parse().ok());
            let group = words.next().unwrap_or_default();
            words.map(move |name| CauseCounter {
                group,
                name,
                normal: normal.unwrap_or(0),
            })
        })
    }
}

/// A counter that shows a cause.
#[derive(Clone, Copy)]
pub(super) struct CauseCounter {
    /// Group of the name.
    pub(super) group: &'static str,
    /// Name in the group. `#` stands for a number.
    pub(super) name: &'static str,
    /// Rate per second below which the counter is normal.
    pub(super) normal: u32,
}

/// All causes. A cause that leads to others precedes them, and the first one is named.
///
/// Packets of unknown protocols, such as LLDP, count as dropped by an interface. On a busy host rxe
/// also retries requests whose acknowledgement is only late, and its `send_err` counts packets that
/// the network stack did not accept. The unit of `port_xmit_wait` depends on the device: clock
/// ticks without flow control credits. ice is the network driver of irdma.
pub(super) const CAUSES: &[Cause] = &[
    Cause {
        kind: WarningKind::LinkDown,
        text: "the link went down",
        help: "check the cable, the transceiver and the port of the switch (`ribinfo check link`)",
        counters: "
            rxe 0 hw_counters link_downed
            - 0 counters link_downed
            - 0 netdev carrier_down_count
            mlx5 0 ethtool link_down_events_phy",
    },
    Cause {
        kind: WarningKind::SymbolErrors,
        text: "packets were damaged on the link",
        help: "clean or replace the cable and the transceiver, and check the forward error correction of both ports",
        counters: "
            - 0 counters symbol_error link_error_recovery local_link_integrity_errors
            - 0 counters port_rcv_errors port_rcv_remote_physical_errors
            mlx5 0 hw_counters rx_icrc_encapsulated
            - 0 netdev rx_crc_errors rx_frame_errors
            mlx5 0 ethtool rx_crc_errors_phy rx_symbol_err_phy
            ice 0 ethtool rx_crc_errors.nic
            - 0 Tcp InCsumErrors
            - 0 Udp InCsumErrors",
    },
    Cause {
        kind: WarningKind::ReceiverNotReady,
        text: "RNR: the receiver had no receive request posted",
        help: "find the program that posts too few receives: rperf's receivers always have one posted, but other programs use the port as well",
        counters: "
            rxe 0 hw_counters rcvd_rnr_err send_rnr_err retry_rnr_exceeded_err
            mlx5 0 hw_counters rnr_nak_retry_err out_of_buffer req_rnr_retries_exceeded
            mlx4 0 hw_counters rq_num_rnr sq_num_rnr sq_num_rree
            bnxt_re 0 hw_counters rnr_naks_rcvd rx_out_of_buffer",
    },
    Cause {
        kind: WarningKind::Discards,
        text: "a port or a host discarded packets",
        help: "enable flow control (PFC or pause frames) on both ports and on the switch, or limit the sender with --rate-limit",
        counters: "
            rxe 0 hw_counters send_err
            - 0 counters port_xmit_discards VL15_dropped excessive_buffer_overrun_errors
            - 0 counters port_rcv_switch_relay_errors port_rcv_constraint_errors
            - 0 counters port_xmit_constraint_errors
            bnxt_re 0 hw_counters rx_roce_discards tx_roce_discards
            efa 0 hw_counters rx_drops
            irdma 10 hw_counters ip4InDiscards ip6InDiscards
            erdma 0 hw_counters tx_disable_drop_cnt tx_bps_limit_drop_cnt tx_pps_limit_drop_cnt
            erdma 0 hw_counters rx_disable_drop_cnt rx_bps_limit_drop_cnt rx_pps_limit_drop_cnt
            - 10 netdev rx_dropped tx_dropped
            - 0 netdev rx_missed_errors rx_fifo_errors rx_over_errors tx_fifo_errors
            mlx5 0 ethtool rx_discards_phy tx_discards_phy rx_prio#_buf_discard
            mlx5 0 ethtool rx_prio#_cong_discard rx_prio#_discards
            bnxt_en 0 ethtool rx_stat_discard tx_stat_discard
            ice 0 ethtool rx_dropped.nic
            - 0 Udp RcvbufErrors SndbufErrors MemErrors
            - 0 TcpExt TCPRcvQDrop TCPBacklogDrop",
    },
    Cause {
        kind: WarningKind::PacketLoss,
        text: "packets were lost or reordered on the way",
        help: "look at the discards and errors of each switch port on the path",
        counters: "
            rxe 1 hw_counters out_of_seq_request rcvd_seq_err completer_retry_err
            rxe 0 hw_counters retry_exceeded_err
            mlx5 1 hw_counters out_of_sequence packet_seq_err implied_nak_seq_err
            mlx5 1 hw_counters local_ack_timeout_err roce_adp_retrans
            mlx5 0 hw_counters req_transport_retries_exceeded roce_adp_retrans_to
            mlx4 1 hw_counters rq_num_oos sq_num_oos sq_num_to sq_num_tree
            bnxt_re 1 hw_counters to_retransmits seq_err_naks_rcvd missing_resp oos_drop_count
            bnxt_re 0 hw_counters max_retry_exceeded
            irdma 1 hw_counters tcpRetransSegs
            - 10 Tcp RetransSegs
            - 1 TcpExt TCPTimeouts",
    },
    Cause {
        kind: WarningKind::Duplicates,
        text: "requests arrived more than once",
        help: "look for a network loop, or for acknowledgements that were lost or late on the way back",
        counters: "
            rxe,mlx5 1 hw_counters duplicate_request
            mlx4 1 hw_counters rq_num_dup
            bnxt_re 1 hw_counters dup_req
            - 10 TcpExt TCPDSACKOldSent",
    },
    Cause {
        kind: WarningKind::RejectedRequests,
        text: "a device rejected requests",
        help: "look at the error of the test, and for other programs with errors on this port",
        counters: "
            mlx5 0 hw_counters req_remote_access_errors req_remote_invalid_request
            mlx5 0 hw_counters resp_local_length_error resp_remote_access_errors
            mlx4 0 hw_counters sq_num_rae sq_num_rire
            bnxt_re 0 hw_counters remote_access_err remote_invalid_req_err
            efa 0 hw_counters rdma_read_wr_err rdma_write_wr_err",
    },
    Cause {
        kind: WarningKind::Congestion,
        text: "congestion control (ECN, CNP) slowed the sender down",
        help: "look for other traffic to the same receiver, and check the ECN thresholds of the switches",
        counters: "
            mlx5 100 hw_counters np_ecn_marked_roce_packets np_cnp_sent rp_cnp_handled
            mlx5 100 hw_counters rp_cnp_ignored roce_slow_restart_cnps
            bnxt_re 100 hw_counters rx_ecn_marked_pkts rx_cnp_pkts tx_cnp_pkts
            irdma 100 hw_counters RxECNMrkd cnpHandled cnpIgnored cnpSent
            hns 100 hw_counters rx_cnp_pkt tx_cnp_pkt
            - 10 IpExt InCEPkts
            - 10 TcpExt TCPDeliveredCE",
    },
    Cause {
        kind: WarningKind::PauseFrames,
        text: "flow control paused the link",
        help: "find the receiver that is too slow: the end that sends pause frames, or a host behind the same switch",
        counters: "
            - 1000000 counters port_xmit_wait
            mlx5 100 ethtool rx_pause_ctrl_phy tx_pause_ctrl_phy rx_global_pause tx_global_pause
            mlx5 100 ethtool rx_prio#_pause tx_prio#_pause
            mlx5 0 ethtool tx_pause_storm_warning_events tx_pause_storm_error_events
            mlx4_en 100 ethtool rx_pause tx_pause rx_pause_prio_# tx_pause_prio_#
            bnxt_en 100 ethtool rx_pause_frames tx_pause_frames rx_pfc_ena_frames_pri#
            bnxt_en 100 ethtool tx_pfc_ena_frames_pri#
            ice 100 ethtool link_xoff_rx.nic link_xoff_tx.nic rx_priority_#_xoff.nic
            ice 100 ethtool tx_priority_#_xoff.nic",
    },
];
