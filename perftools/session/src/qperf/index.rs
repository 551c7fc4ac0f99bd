//! The mapping between test names and the test number in a request.

/// Names of qperf's tests, by number. The last three exist only if qperf was built with XRC.
pub(crate) const NAMES: [&str; 36] = [
    "conf",
    "quit",
    "rds_bw",
    "rds_lat",
    "sctp_bw",
    "sctp_lat",
    "sdp_bw",
    "sdp_lat",
    "tcp_bw",
    "tcp_lat",
    "udp_bw",
    "udp_lat",
    "rc_bi_bw",
    "rc_bw",
    "rc_compare_swap_mr",
    "rc_fetch_add_mr",
    "rc_lat",
    "rc_rdma_read_bw",
    "rc_rdma_read_lat",
    "rc_rdma_write_bw",
    "rc_rdma_write_lat",
    "rc_rdma_write_poll_lat",
    "uc_bi_bw",
    "uc_bw",
    "uc_lat",
    "uc_rdma_write_bw",
    "uc_rdma_write_lat",
    "uc_rdma_write_poll_lat",
    "ud_bi_bw",
    "ud_bw",
    "ud_lat",
    "ver_rc_compare_swap",
    "ver_rc_fetch_add",
    "xrc_bi_bw",
    "xrc_bw",
    "xrc_lat",
];

/// Returns the name of the test with this number.
pub fn name(index: u16) -> Option<&'static str> {
    NAMES.get(usize::from(index)).copied()
}

/// Returns the number of the test with this name.
pub(crate) fn from_name(name: &str) -> Option<u16> {
    NAMES
        .iter()
        .position(|n| *n == name)
        .and_then(|at| u16::try_from(at).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_map_to_each_other() {
        assert_eq!(
            (name(8), from_name("rc_bw"), from_name("quit")),
            (Some("tcp_bw"), Some(13), Some(1))
        );
        assert_eq!(
            (name(36), name(u16::MAX), from_name("rc_bv")),
            (None, None, None)
        );
        for (index, test) in (0..).zip(NAMES) {
            assert_eq!((name(index), from_name(test)), (Some(test), Some(index)));
        }
    }
}
