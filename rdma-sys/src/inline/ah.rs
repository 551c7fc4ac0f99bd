//! Address handles.

use crate::IB_ROCE_UDP_ENCAP_VALID_PORT_MIN;

/// Returns the UDP source port that RoCE v2 derives from a flow label.
#[inline]
#[allow(
    clippy::cast_possible_truncation,
    reason = "the result has 16 bits: 14 bits of the flow label and the two highest bits of the port range"
)]
pub const fn ibv_flow_label_to_udp_sport(fl: u32) -> u16 {
    let low = fl & 0x03fff;
    let high = fl & 0xfc000;
    ((low ^ (high >> 14)) | IB_ROCE_UDP_ENCAP_VALID_PORT_MIN) as u16
}
